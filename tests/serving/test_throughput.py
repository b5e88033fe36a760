"""Tokens a second out of a vLLM server's counters."""

from __future__ import annotations

import pytest

from opbench.serving.throughput import HEADING, Counters, Throughput, between, line, read, together

#: As vLLM 0.32 writes it, of two engines (data parallel).
METRICS = """# HELP vllm:prompt_tokens_total Number of prefill tokens processed.
# TYPE vllm:prompt_tokens_total counter
vllm:prompt_tokens_total{engine="0",model_name="a b {c}"} 1000.0
vllm:prompt_tokens_total{engine="1",model_name="a b {c}"} 1.5e+03
vllm:prompt_tokens_created{engine="0",model_name="m"} 1.7960320727709763e+09
vllm:prompt_tokens_by_source_total{engine="0",model_name="m",source="local_compute"} 9.0
vllm:generation_tokens_total{engine="0",model_name="m"} 200.0
vllm:generation_tokens_total{engine="1",model_name="m"} 300.0
vllm:prefix_cache_queries_total{engine="0",model_name="m"} 2500.0
vllm:prefix_cache_hits_total{engine="0",model_name="m"} 1000.0
vllm:external_prefix_cache_hits_total{engine="0",model_name="m"} 7.0
vllm:num_requests_running{engine="0",model_name="m"} 3.0
vllm:num_requests_running{engine="1",model_name="m"} 4.0
vllm:num_requests_waiting{engine="0",model_name="m"} 2.0
vllm:num_requests_waiting_by_reason{engine="0",model_name="m",reason="capacity"} 2.0
vllm:request_prompt_tokens_bucket{engine="0",le="+Inf",model_name="m"} 12.0
python_gc_objects_collected_total{generation="0"} 10.0
"""


def test_the_counters_of_all_engines_are_summed() -> None:
    assert read(METRICS, 5.0) == Counters(
        5.0, prompt=2500.0, generated=500.0, asked=2500.0, found=1000.0, running=7, waiting=2
    )


@pytest.mark.parametrize("text", ["", "<html>", "llamacpp:prompt_tokens_total 4\n", "vllm:prompt_tokens_total x\n"])
def test_what_is_no_vllm_is_none(text: str) -> None:
    assert read(text, 0.0) is None


def test_the_difference_over_the_time() -> None:
    before = Counters(10.0, prompt=1000, generated=100, asked=1000, found=500, running=9, waiting=9)
    after = Counters(14.0, prompt=3000, generated=300, asked=3000, found=2000, running=2, waiting=0)
    assert between(before, after) == Throughput(500.0, 50.0, running=2, waiting=0, hits=0.75)


def test_without_a_prompt_there_is_no_hit_rate_and_nothing_to_do_is_idle() -> None:
    one = Counters(1.0, prompt=10, generated=10, asked=10, found=0, running=0, waiting=0)
    later = Counters(2.0, prompt=10, generated=10, asked=10, found=0, running=0, waiting=0)
    seen = between(one, later)
    assert seen == Throughput(0.0, 0.0, 0, 0, None)
    assert seen.idle
    waiting = between(one, Counters(2.0, prompt=10, generated=10, asked=10, found=0, running=0, waiting=1))
    assert waiting is not None
    assert not waiting.idle


def test_a_server_that_began_anew_has_no_throughput_of_that_time() -> None:
    before = Counters(1.0, prompt=1000, generated=10, asked=10, found=0, running=0, waiting=0)
    after = Counters(2.0, prompt=5, generated=50, asked=10, found=0, running=0, waiting=0)
    assert between(before, after) is None
    assert between(before, before) is None


def test_several_servers_as_one() -> None:
    one = Counters(1.0, prompt=10, generated=1, asked=8, found=2, running=1, waiting=0)
    two = Counters(1.2, prompt=20, generated=2, asked=12, found=3, running=2, waiting=5)
    assert together([one, two]) == Counters(1.2, prompt=30, generated=3, asked=20, found=5, running=3, waiting=5)


def test_lines_stand_below_their_headings() -> None:
    rows = [HEADING, line("10:00:00", "8000", Throughput(1234.5, 67.89, 12, 3, 0.4567)), line("10:00:05", "all", None)]
    assert {len(row) for row in rows} == {len(HEADING)}
    assert rows[1].split() == ["10:00:00", "8000", "1,234.5", "67.9", "12", "3", "46%"]
    assert rows[2].split() == ["10:00:05", "all", "–", "–", "–", "–", "–"]
