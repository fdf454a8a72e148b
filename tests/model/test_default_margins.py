"""Honest runs of the default model by its real engine: no margin proof comes near them."""

from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("torch")

from verillm.engine import open_engine
from verillm.engine.describe import shipped_profile
from verillm.engine.prepare import MODEL_NAME, default_folder, is_prepared
from verillm.head import HeadRows
from verillm.proofs.rivals import ProvenHead
from verillm.request import Sampling
from verillm.sampling import kept, scores
from verillm.statistics import to_floats
from verillm.types import PPM
from verillm_verifier.replay import local_task
from verillm_verifier.runs import Plan, items_of

pytestmark = [
    pytest.mark.model,
    pytest.mark.skipif(not is_prepared(default_folder(), full=False), reason="make model first"),
]
NEW_TOKENS = 16


@pytest.mark.parametrize("dtype", ["bfloat16", "float32"])
def test_no_rival_beats_a_token_of_the_default_model_by_more_than_rounding(dtype: str) -> None:
    """All rivals by float32 scores, the nearest in integers, at every generated position."""
    folder: Path = default_folder()
    head, profile = ProvenHead(HeadRows(folder)), shipped_profile(MODEL_NAME).profile
    items = items_of(Plan(folder, new_tokens=NEW_TOKENS))[:3]
    changes = (Sampling(0), Sampling(PPM), Sampling(PPM, top_p=900_000))
    chosen = tuple(
        type(item)(item.salt, item.tokens, item.max_new_tokens, sampling, item.seed)
        for item, sampling in zip(items, changes, strict=True)
    )
    engine = open_engine(folder, dtype=dtype)  # type: ignore[arg-type]  # parametrized
    engine.start()
    try:
        trace = engine.submit(local_task(chosen), lambda *_: None).result(240)
    finally:
        engine.close()
    worst = 0
    for run, item in zip(trace.items, chosen, strict=True):
        for position in range(run.prompt_tokens - 1, len(run.tokens) - 1):
            final, token = run.finals[position], run.tokens[position + 1]
            logits = head.rows.logits(to_floats(final)[None])[0]
            ranked = scores(logits, item.sampling, item.seed, position)
            inside = np.where(kept(logits, item.sampling), ranked, -np.inf)
            assert float(inside.max() - ranked[token]) < 0.01
            for rival in np.argsort(-inside)[:3]:
                margin = head.margin(final, item, position, token, int(rival))
                assert margin is not None
                assert margin.rounding < profile.margin_max_slash // 4
                if margin.counts(item.sampling, profile.logit_tau):
                    worst = max(worst, margin.margin)
                    assert margin.margin <= margin.rounding
    assert worst < profile.logit_tau // 100
