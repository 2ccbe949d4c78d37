"""Devices to test on, and the C library that says what the bits must be."""

import os

import pytest
import torch

DEVICES = ["cpu"] + (["cuda"] if torch.cuda.is_available() else [])


@pytest.fixture(params=DEVICES)
def device(request):
    """Each device that is here: the CPU always."""
    return request.param


@pytest.fixture(autouse=True)
def seeded():
    """The same numbers whatever ran before."""
    torch.manual_seed(20)


def pytest_report_header(config):
    library = os.environ.get("TRUENORM_LIBRARY", "not given: tests of bits are skipped")
    return f"torch {torch.__version__}, devices {', '.join(DEVICES)}; TRUENORM_LIBRARY {library}"


def pytest_terminal_summary(terminalreporter):
    if "cuda" not in DEVICES:
        terminalreporter.write_line("NO GPU HERE: nothing was tested on CUDA.", yellow=True)
