"""The programs that tools/gpu_check runs: together and for a limited time, what failed, and which tools there are."""

import os
import re
import shutil
import signal
import subprocess
import time


class Processes:
    """Started together, each in a group of its own with its output in a file, and ended when time is up."""

    def __init__(self, logs, deadline):
        self.logs, self.deadline, self.started = logs, deadline, []

    def start(self, name, command, environment):
        log = self.logs / f"{name}.log"
        with open(log, "wb") as file:
            process = subprocess.Popen(
                [str(part) for part in command], cwd=self.logs, env=environment, stdin=subprocess.DEVNULL,
                stdout=file, stderr=subprocess.STDOUT, start_new_session=True,
            )  # fmt: skip
        self.started.append((process, log))

    def wait(self):
        """(exit code, output) of each; None for the exit code of those that time ran out for."""
        try:
            codes = []
            for process, _ in self.started:
                try:
                    codes.append(process.wait(max(self.deadline - time.monotonic(), 0)))
                except subprocess.TimeoutExpired:
                    codes.append(None)
        finally:
            for process, _ in self.started:
                if process.poll() is None:
                    os.killpg(process.pid, signal.SIGKILL)
                    process.wait()
        return [(code, log.read_text(errors="replace")) for code, (_, log) in zip(codes, self.started)]


def why(code, output):
    """A command's failure in one sentence."""
    if code is None:
        return "stopped: its time was up (--timeout)"
    lines = [line.strip() for line in output.splitlines() if line.strip()]
    return f"exit code {code}: {lines[-1] if lines else 'no output'}"


def find_tool(name):
    folders = [os.environ.get(key, "") + "/bin" for key in ["CUDA_HOME", "CUDA_PATH"] if os.environ.get(key)]
    folders += ["/usr/local/cuda/bin", "/opt/cuda/bin"]
    return shutil.which(name) or shutil.which(name, path=os.pathsep.join(folders))


def output_of(tool, *arguments):
    path = find_tool(tool)
    if path is None:
        return ""
    try:
        return subprocess.run([path, *arguments], capture_output=True, text=True, timeout=60).stdout
    except (OSError, subprocess.TimeoutExpired):
        return ""


def driver_version():
    lines = output_of("nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader").split()
    return lines[0] if lines else "unknown"


def toolkit_version():
    found = re.search(r"release (\S+),", output_of("nvcc", "--version"))
    return found.group(1) if found else "unknown"
