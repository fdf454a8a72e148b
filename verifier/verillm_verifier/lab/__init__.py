"""The detection lab: every named cheat against the real verdict, on real runs of a model.

`study` runs the model and keeps the runs, `cases` judges one job under any draw, `matrix` names the
trials, `trials` and `pooled` count what is caught, `report` writes `docs/detection.md`.
"""

from verillm_verifier.lab.command import main

__all__ = ["main"]
