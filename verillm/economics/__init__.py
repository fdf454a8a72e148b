"""What honesty is worth: parameters for a deployer, and a simulation of the real rules.

``lemmas``       bounds of the paper and of proof of sampling, as formulas
``capture``      the exact chance that a draw puts a coalition in charge
``parameters``   from a deployer's situation to parameters; refuses unsafe ones
``simulation``   thousands of jobs under the real draw, verdict and money rules
``command``      `verillm params`
"""
