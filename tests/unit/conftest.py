"""How `make mutants` runs properties: to find that a mutant differs is enough."""

from hypothesis import Phase, settings

settings.register_profile(
    "mutants",
    phases=(Phase.explicit, Phase.generate),
    derandomize=True,
    deadline=None,
    database=None,
)
