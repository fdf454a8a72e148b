"""What honesty is worth: parameters for a deployer, and a simulation of the real rules.

``lemmas``       bounds of the paper and of proof of sampling, as formulas
``capture``      the exact chance that a draw puts a coalition in charge
``parameters``   a deployer's situation, a deployment's parameters, what one demands of the other
``rules``        every reason why parameters are unsafe; ``recommend`` meets them all
``world``        conducts, costs and tallies of a simulated network; ``simulation`` runs it
``command``      `verillm params`
"""
