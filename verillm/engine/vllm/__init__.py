"""The engine on vLLM: continuous batching, paged caches, chunked prefill; the same traces.

`engine` is what a worker opens. `driver` owns the running batch: which rows of a forward pass are
which request's positions, and what they choose; `keeper` is the thread beside it. `serving`,
`loading` and `hooks` touch vLLM itself: loading, one step, what stands around it; they import it
only when an engine starts. Over several devices `ranks` are the processes beside this one,
`follower` is what runs in them, `seat` what each begins with, and `executor` has them do what this
one does. `choosing` is the sampler's fast path over a batch, with `head` (exact logits, and how far
vLLM's are from them), `nucleus` (what truncation keeps) and `noise` (random words). `rows` keeps
the captured states within bounds.

What vLLM does and a trace cannot have is switched off: prefix caching (a cached position has no
states to commit to) and speculation (a drafted token has no state of its own).
"""
