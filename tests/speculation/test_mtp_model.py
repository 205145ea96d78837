"""The MTP layer in a file of its own, as `hy3 convert --mtp-only` writes it, beside a model without one."""

from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from support.draft_models import agreeing_weights
from support.random_hy3 import (
    gguf_weights,
    in_type,
    make_config,
    make_tokens,
    make_weights,
    write_model,
    write_parts,
)

import hy3core
from hy3.cli import main

CONFIG = make_config(num_nextn_predict_layers=1)
PROMPT = make_tokens(CONFIG, 40, seed=81)
WEIGHTS = agreeing_weights(CONFIG, 80, 0.2)


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """`whole`, and the same in two: `trunk` and `layer`."""
    folder = tmp_path_factory.mktemp("mtp")
    paths = {name: folder / f"{name}.gguf" for name in ("whole", "trunk", "layer")}
    write_model(paths["whole"], CONFIG, WEIGHTS, in_type("f32"))
    for name, option in (("trunk", "--no-mtp"), ("layer", "--mtp-only")):
        result = CliRunner().invoke(
            main, ["convert", str(paths["whole"]), "-o", str(paths[name]), "-t", "f32", option]
        )
        assert result.exit_code == 0, result.output
    return paths


def write_layer(path: Path, config: dict[str, Any], drop: str = "nothing") -> Path:
    """A file with the MTP layer of a random model alone, without what it shares with the trunk."""
    block = f"blk.{config['num_hidden_layers']}."
    parts = gguf_weights(config, make_weights(config, 82)).items()
    kept = {name: array for name, array in parts if name.startswith(block) and drop not in name}
    return write_parts(path, config, kept, in_type("f32"))


def test_two_files_are_one_model(files: dict[str, Path]) -> None:
    whole = hy3core.Model(files["whole"], threads=1)
    joint = hy3core.Model(files["trunk"], threads=1, mtp_model=files["layer"])
    assert joint.config == whole.config
    expected = whole.session(ctx=128, mtp=True)
    session = joint.session(ctx=128, mtp=True)
    assert session.eval(PROMPT).tobytes() == expected.eval(PROMPT).tobytes()
    assert session.mtp_logits(3).tobytes() == expected.mtp_logits(3).tobytes()
    ids = list(expected.generate(PROMPT, 30, stop_ids=[], mtp=2, mtp_always=True))
    assert list(session.generate(PROMPT, 30, stop_ids=[], mtp=2, mtp_always=True)) == ids
    assert session.stats["drafts"] == expected.stats["drafts"]
    assert session.stats["accepted"] > 5


def test_a_file_without_what_the_layer_shares(tmp_path: Path, files: dict[str, Path]) -> None:
    """Embedding and head are the trunk's."""
    layer = write_layer(tmp_path / "layer.gguf", CONFIG)
    session = hy3core.Model(files["trunk"], threads=1, mtp_model=layer).session(ctx=128, mtp=True)
    plain = hy3core.Model(files["trunk"], threads=1).session(ctx=128)
    assert list(session.generate(PROMPT, 20, stop_ids=[], mtp=2, mtp_always=True)) == list(
        plain.generate(PROMPT, 20, stop_ids=[])
    )
    assert session.stats["drafted"] > 0


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"hidden_size": 128}, r"hy_v3\.embedding_length is 128, and 64 in"),
        ({"num_attention_heads": 8}, r"hy_v3\.attention\.head_count is 8, and 4 in"),
        ({"num_key_value_heads": 4}, r"hy_v3\.attention\.head_count_kv is 4, and 2 in"),
        ({"head_dim": 32}, r"hy_v3\.attention\.key_length is 32, and 64 in"),
        ({"num_experts": 6}, r"hy_v3\.expert_count is 6, and 5 in"),
        ({"moe_intermediate_size": 64}, r"hy_v3\.expert_feed_forward_length is 64, and 96 in"),
        ({"num_shared_experts": 2}, r"hy_v3\.expert_shared_feed_forward_length is 192, and 96 in"),
        ({"num_hidden_layers": 4}, r"there is no tensor blk\.3\.nextn\.eh_proj\.weight"),
    ],
)
def test_what_differs_is_named(
    tmp_path: Path, files: dict[str, Path], changes: dict[str, int], named: str
) -> None:
    layer = write_layer(tmp_path / "other.gguf", make_config(num_nextn_predict_layers=1, **changes))
    with pytest.raises(hy3core.UnsupportedError, match=rf"other\.gguf: {named}.*of the same model\."):
        hy3core.Model(files["trunk"], mtp_model=layer)


def test_another_vocabulary_is_named(tmp_path: Path, files: dict[str, Path]) -> None:
    config = make_config(num_nextn_predict_layers=1, vocab_size=302)
    other = write_model(tmp_path / "other.gguf", config, make_weights(config, 1), in_type("f32"))
    with pytest.raises(hy3core.UnsupportedError, match=r"token_embd.weight\) is 302, and 301 in"):
        hy3core.Model(files["trunk"], mtp_model=other)


def test_a_missing_tensor_is_named(tmp_path: Path, files: dict[str, Path]) -> None:
    layer = write_layer(tmp_path / "layer.gguf", CONFIG, drop="ffn_up_exps")
    with pytest.raises(hy3core.FormatError, match=r"layer\.gguf: the tensor blk\.3\.ffn_up_exps\.weight"):
        hy3core.Model(files["trunk"], mtp_model=layer)


def test_a_model_with_a_layer_of_its_own(files: dict[str, Path]) -> None:
    with pytest.raises(hy3core.InvalidArgumentError, match=r"whole\.gguf: .*of its own"):
        hy3core.Model(files["whole"], mtp_model=files["layer"])


def test_a_file_that_is_not_there(tmp_path: Path, files: dict[str, Path]) -> None:
    with pytest.raises(hy3core.FileError, match=r"none\.gguf: cannot be opened: No such file"):
        hy3core.Model(files["trunk"], mtp_model=tmp_path / "none.gguf")
    with pytest.raises(hy3core.InvalidArgumentError, match="path is empty"):
        hy3core.Model(files["trunk"], mtp_model="")


def test_the_layer_alone_is_no_model(files: dict[str, Path]) -> None:
    with pytest.raises(hy3core.UnsupportedError, match="only the MTP layer"):
        hy3core.Model(files["layer"])


def test_run(files: dict[str, Path]) -> None:
    """Through the program: the same text, and what became of the drafts on stderr."""

    def run(*args: str) -> tuple[str, str]:
        result = CliRunner().invoke(
            main, ["run", "-m", str(files["trunk"]), "--raw", "-p", "hello", "-n", "40", "-c", "128", *args]
        )
        assert result.exit_code == 0, result.output
        return result.stdout, result.stderr

    text, speeds = run()
    assert "drafts" not in speeds
    drafted, told = run("--mtp", "2", "--mtp-model", str(files["layer"]))
    assert drafted == text
    assert " drafts accepted (by depth " in told
