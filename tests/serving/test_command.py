"""A registry entry as the commands of its servers: what is added, what may be said otherwise, what contradicts."""

from __future__ import annotations

import tomllib

import pytest

from opbench.errors import UsageError
from opbench.models import ModelSpec, load_registry
from opbench.serving.command import Order, order, warnings
from tests.serving.conftest import spec


def flags(made: Order) -> dict[str, list[str]]:
    """As vLLM reads them: the last one of a name counts."""
    read: dict[str, list[str]] = {}
    for word in made.arguments(made.ports[0]):
        if word.startswith("-"):
            name = word
            read[name] = []
        else:
            read[name].append(word)
    return read


def test_a_server_is_on_loopback_with_prefix_caching_a_seed_and_the_entrys_port_and_name() -> None:
    made = order(spec(8123))
    assert made.model == "org/Mine-8B"
    assert flags(made) == {
        "--host": ["127.0.0.1"],
        "--enable-prefix-caching": [],
        "--seed": ["0"],
        "--max-model-len": ["4096"],
        "--served-model-name": ["org/Mine-8B"],
        "--port": ["8123"],
    }
    assert (made.host, made.ports, made.gpus) == ("127.0.0.1", (8123,), 1)
    assert made.urls == ("http://127.0.0.1:8123/v1",)
    assert made.entry() is None


def test_the_papers_open_models_are_served_as_their_entries_say() -> None:
    registry = load_registry()
    gpus = {name: order(entry).gpus for name, entry in registry.models.items() if entry.vllm}
    assert gpus == {"deepseek-v3.2": 8, "qwen3-235b-a22b-instruct-2507": 8, "qwen3-32b": 2, "qwen3-8b": 1}


def test_the_users_flags_come_last() -> None:
    made = order(spec(), ["--max-model-len", "8192", "--seed=7", "--host", "0.0.0.0"])
    read = flags(made)
    assert (read["--max-model-len"], read["--host"], made.host) == (["8192"], ["0.0.0.0"], "0.0.0.0")
    assert "--seed=7" in read
    assert made.arguments(8000).index("--seed=7") > made.arguments(8000).index("--seed")
    assert made.here(8000) == "http://127.0.0.1:8000"


@pytest.mark.parametrize(
    ("command", "gpus"),
    [
        ("-tp 4", 4),
        ("--tensor_parallel_size=4 --pipeline-parallel-size 2", 8),
        ("-tp 2 -dp 3", 6),
        ("--data-parallel-size 16 --data-parallel-size-local 4 -tp 2", 8),
        ("-tp 4 --tensor-parallel-size 2", 2),
    ],
)
def test_the_gpus_of_a_server(command: str, gpus: int) -> None:
    assert order(spec(vllm=f"vllm serve m {command}")).gpus == gpus


def test_servers_next_to_each_other_and_the_entry_that_puts_them_behind_one_name() -> None:
    made = order(spec(8000, key_env="MY_KEY", price_in=0.5), servers=3)
    assert made.ports == (8000, 8001, 8002)
    entry = made.entry()
    assert entry is not None
    assert tomllib.loads(entry) == {
        "models": {
            "mine": {
                "base_url": "http://127.0.0.1:8000/v1",
                "served": "org/Mine-8B",
                "vllm": "vllm serve org/Mine-8B --max-model-len 4096",
                "key_env": "MY_KEY",
                "price_in": 0.5,
                "replicas": ["http://127.0.0.1:8001/v1", "http://127.0.0.1:8002/v1"],
            }
        }
    }


def test_an_entry_with_replicas_starts_those_of_its_machine() -> None:
    known = spec(8000, replicas=["http://127.0.0.1:8005/v1", "http://other:8000/v1"])
    made = order(known)
    assert made.ports == (8000, 8005)
    assert made.entry() is None
    assert order(known, servers=1).ports == (8000,)
    more = order(known, servers=3)
    assert more.ports == (8000, 8005, 8006)
    assert tomllib.loads(more.entry() or "")["models"]["mine"]["replicas"] == [
        "http://127.0.0.1:8005/v1",
        "http://other:8000/v1",
        "http://127.0.0.1:8006/v1",
    ]


def test_a_password_in_an_address_is_not_shown() -> None:
    entry = order(spec(base_url="http://me:secret@127.0.0.1:8000/v1"), servers=2).entry()
    assert entry is not None
    assert "secret" not in entry


def test_a_name_under_which_it_is_served_besides_stays() -> None:
    made = order(spec(vllm="vllm serve m --served-model-name other org/Mine-8B --seed 3"))
    assert flags(made)["--served-model-name"] == ["other", "org/Mine-8B"]


@pytest.mark.parametrize(
    ("fields", "further", "servers", "said"),
    [
        ({"vllm": None}, [], None, "no vllm command.*vllm serve ORGANISATION/MODEL"),
        ({"vllm": "docker run vllm"}, [], None, r'isn\'t of the form "vllm serve MODEL'),
        ({"vllm": "vllm serve --port 8000"}, [], None, r'isn\'t of the form "vllm serve MODEL'),
        ({"vllm": "vllm serve 'm"}, [], None, "Mend its quotes"),
        ({}, ["--port", "9"], None, "says --port 9, its base_url 8000. Take --port out"),
        ({}, ["--served-model-name", "x"], None, "serves it as x, its entry asks for org/Mine-8B"),
        ({}, ["-tp", "two"], None, "--tensor-parallel-size two: takes one number"),
        ({}, ["-dp=0"], None, "--data-parallel-size 0: takes one number"),
        ({}, ["--host"], None, "--host names no address"),
        ({"base_url": "https://127.0.0.1/v1"}, [], None, "answers plain http below /v1"),
        ({"base_url": "http://127.0.0.1:8000"}, [], None, "answers plain http below /v1"),
        ({"base_url": "http://127.0.0.1:65530/v1"}, [], 9, "9 servers from port 65530 on go beyond 65535"),
    ],
)
def test_what_contradicts_is_told_with_its_mend(
    fields: dict[str, object], further: list[str], servers: int | None, said: str
) -> None:
    with pytest.raises(UsageError, match=f"^mine: .*{said}"):
        order(ModelSpec.model_validate(spec().model_dump(exclude_unset=True) | fields), further, servers)


def test_an_embedded_model_needs_no_server() -> None:
    with pytest.raises(UsageError, match="smollm2-135m is embedded"):
        order(load_registry().model("smollm2-135m"))


@pytest.mark.parametrize("further", [["--api-key", "planted-secret-1"], ["--api_key=planted-secret-1"]])
def test_a_key_among_the_flags_is_refused_and_not_repeated(further: list[str]) -> None:
    with pytest.raises(UsageError, match="set key_env") as error:
        order(spec(), further)
    assert "planted" not in str(error.value)


def test_who_can_reach_it_and_who_cannot_is_told() -> None:
    assert warnings(order(spec())) == []
    assert warnings(order(spec(key_env="K"), ["--host", "0.0.0.0"])) == []
    (open_to_all,) = warnings(order(spec(), ["--host", "0.0.0.0"]))
    assert "Set key_env" in open_to_all
    (unreachable,) = warnings(order(spec(base_url="http://gpu-box:8000/v1")))
    assert "base_url names gpu-box, but 127.0.0.1 is reached from this machine alone" in unreachable
