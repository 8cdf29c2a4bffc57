#!/usr/bin/env python3
"""Set up LLMServe Lab and open it. Needs Python 3.11 or newer and nothing else.

    python3 lab.py           open the course in JupyterLab
                             (--no-browser, --port N, --ip A and the rest go to Jupyter)
    python3 lab.py test      run the tests (what follows goes to pytest)
    python3 lab.py doctor    say what works on this machine

Everything is installed into .venv beside this file; --reset rebuilds it.
"""

import hashlib
import importlib.util
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

if sys.version_info < (3, 11):  # noqa: UP036  (first: an older Python 3 trips over the rest)
    sys.exit(
        "LLMServe Lab needs Python 3.11 or newer, and this is Python "
        f"{sys.version_info[0]}.{sys.version_info[1]}: install a newer one from "
        "https://www.python.org/downloads/ and start lab.py with it."
    )

ROOT = Path(__file__).resolve().parent
TORCH_TESTED, TORCH_FLOOR = "2.13.0", "2.11"  # the floor is that of pyproject.toml
CPU_INDEX = "https://download.pytorch.org/whl/cpu"
FIRST_PAGE = "/lab/tree/notebooks/00_start_here.ipynb"
PROBE_SECONDS = 3
SPACE_CPU, SPACE_GPU, SPACE_UPDATE = 4.0, 12.0, 0.5  # GB free before a set-up starts
ACTIONS = {"open": ["lab"], "test": ["lab", "test"], "doctor": ["lab"]}  # and the extras they need
# One process a core, at most four: each holds torch, and a notebook's kernel beside it.
AT_ONCE = ["-n", "auto", "--maxprocesses", "4", "--dist", "worksteal"]
MODULES = {
    "lab": ["torch", "transformers", "jupyterlab", "ipywidgets", "plotly", "anywidget"],
    "test": ["pytest", "xdist", "nbval", "hypothesis"],
}
NO_NETWORK = (
    "The package index cannot be reached: connect to the network (or set PIP_INDEX_URL, "
    "HTTPS_PROXY or PIP_CERT to what your network uses), then start again."
)
# What pip, venv and the system say when they fail, and the sentence for it.
SYMPTOMS = {
    r"No space left|Errno 28\b|not enough space|WinError 112": (
        "The disk is full: free some space for {root} and for {temp}, then start again."
    ),
    r"Read-only file system|Permission denied|Errno 13\b|WinError 5\b": (
        "{root} cannot be written to: copy the course to a folder of your own and start it there."
    ),
    r"NewConnection|NameResolution|Failed to resolve|name resolution|getaddrinfo|ConnectTimeout"
    r"|ReadTimeout|ProxyError|SSLError|Network is unreachable"
    r"|Connection (refused|aborted|reset)": NO_NETWORK,
}


class Problem(Exception):
    """What is wrong and what to do, in one sentence for the user."""


def diagnosis(errors: str, root: Path) -> str | None:
    """The sentence for what the error text is a symptom of, where it is a known one."""
    found = (text for pattern, text in SYMPTOMS.items() if re.search(pattern, errors))
    return next((text.format(root=root, temp=tempfile.gettempdir()) for text in found), None)


def say(text: str) -> None:
    print(f"[lab] {text}", flush=True)


def modules(extras: list[str]) -> list[str]:
    return [module for extra in extras for module in MODULES.get(extra, [])]


def release(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in re.findall(r"\d+", version)[:2])


def last_line(text: str) -> str:
    return (text.strip().splitlines() or ["no reason given"])[-1].strip()


def run_tool(command: list[str]) -> tuple[int, str]:
    """Run a command, its progress on the screen; returns its exit code and its stderr."""
    errors = []
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, errors="replace")
    try:
        for line in process.stderr or ():
            errors.append(line)
            if "Retrying" in line:
                say("No answer from the package index yet, trying again")
        return process.wait(), "".join(errors)
    except KeyboardInterrupt:  # the tool got it too: it may clean up
        try:
            process.wait(timeout=10)
        except subprocess.TimeoutExpired:
            process.kill()
        raise


def ask(command: list, seconds: float = 120) -> str | None:
    """What a command prints, or None when it fails, does not start or takes too long."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=seconds)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.strip() if done.returncode == 0 else None


def has_nvidia_gpu(system: Path = Path("/")) -> bool:
    """Whether the NVIDIA driver shows a GPU: by its device files, or in nvidia-smi's list."""
    if any(system.glob("proc/driver/nvidia/gpus/*")) or any(system.glob("dev/nvidia[0-9]")):
        return True
    smi = shutil.which("nvidia-smi") or shutil.which("nvidia-smi", path="/usr/lib/wsl/lib")
    return bool(smi) and "GPU 0" in (ask([smi, "-L"]) or "")


def reachable(url: str, seconds: float = PROBE_SECONDS) -> bool:
    """Whether url answers in time, name look-up (which has no time limit of its own) included."""
    code = f"import urllib.request as u; u.urlopen({url + '/'!r})"
    return ask([sys.executable, "-c", code], seconds) is not None


class Environment:
    """The virtual environment `root/.venv`, kept up to date with `root/pyproject.toml`."""

    def __init__(self, root: Path, tool=run_tool):
        self.root, self.tool = root, tool
        self.folder = root / ".venv"
        self.stamp = self.folder / "lab-stamp.json"
        self.unfinished = self.folder / "lab-unfinished"
        self.errors = self.folder / "lab-errors.txt"
        self.bin = self.folder / ("Scripts" if os.name == "nt" else "bin")
        self.python = self.bin / ("python.exe" if os.name == "nt" else "python")

    def prepare(self, extras: list[str]) -> None:
        """Leave an environment that has the extras; when it has them already, do nothing."""
        if self.unfinished.exists():
            self.remove()
        if not self.folder.exists() or (self.folder.is_dir() and not any(self.folder.iterdir())):
            self.create()
        fingerprint, stamp = self.fingerprint(self.version()), self.read_stamp()
        present = stamp.get("extras", [])
        up_to_date = stamp.get("fingerprint") == fingerprint and set(extras) <= set(present)
        if up_to_date and self.has(extras):
            return
        extras = sorted({*extras, *present})
        self.install(extras)
        content = json.dumps({"fingerprint": fingerprint, "extras": extras})
        self.stamp.write_text(content, encoding="utf-8")

    def create(self) -> None:
        for module in ("venv", "ensurepip"):
            if importlib.util.find_spec(module) is None:
                raise Problem(
                    f"This Python lacks its {module} module: install it (Debian and Ubuntu: sudo "
                    f"apt install python3.{sys.version_info[1]}-venv), then start again."
                )
        tempfile.TemporaryFile(dir=self.root).close()  # an OSError when it is read-only
        self.check_space(SPACE_CPU)
        say(f"1/4 Making the environment {self.folder}")
        self.folder.mkdir(exist_ok=True)
        self.unfinished.touch()
        self.must([sys.executable, "-m", "venv", str(self.folder)])
        self.unfinished.unlink()

    def install(self, extras: list[str]) -> None:
        tempfile.TemporaryFile(dir=self.folder).close()
        self.stamp.unlink(missing_ok=True)  # from here on nothing is done until all is
        self.forget_half_installed()
        self.install_torch()
        names = ",".join(extras)
        say(f"3/4 Installing the course and its tools [{names}]")
        self.must(self.pip("-e", f"{self.root}[{names}]"))
        say("4/4 Checking that they load")
        self.must([str(self.python), "-c", f"import llmserve_lab, {', '.join(modules(extras))}"])

    def install_torch(self) -> None:
        code = "import importlib.metadata as m; print(m.version('torch'))"
        installed = ask([self.python, "-c", code])
        if installed and release(installed) >= release(TORCH_FLOOR):
            say(f"2/4 torch {installed} is here")
            return self.check_space(SPACE_UPDATE)
        gpu, errors = has_nvidia_gpu(), ""
        self.check_space(SPACE_GPU if gpu else SPACE_CPU)
        say(f"2/4 Installing torch ({'the default build' if gpu else 'for the CPU'})")
        for source in self.torch_sources(gpu):
            failed, errors = self.tool(self.pip(*source))
            if not failed:
                return None
            known = diagnosis(errors, self.root)
            if known and not (known == NO_NETWORK and CPU_INDEX in source):
                raise Problem(known)
        raise Problem(
            f"pip has no torch for this Python and machine ({last_line(errors)}): use a 64-bit "
            "Python 3.11, 3.12 or 3.13 and start it as python3 lab.py --reset."
        )

    def torch_sources(self, gpu: bool) -> list[list[str]]:
        """Arguments for pip install, the best first."""
        tested = f"torch=={TORCH_TESTED}"
        sources = [[tested], [f"torch>={TORCH_FLOOR}"]]
        if not gpu and sys.platform != "darwin" and reachable(CPU_INDEX):
            sources.insert(0, [tested, "--index-url", CPU_INDEX])
        return sources

    def forget_half_installed(self) -> None:
        """Drop the records of packages whose installation was cut short: pip then redoes them."""
        for packages in ("lib/python3*/site-packages", "Lib/site-packages"):
            for record in self.folder.glob(f"{packages}/*.dist-info"):
                if not (record / "INSTALLER").exists():  # one of the last files that pip writes
                    shutil.rmtree(record)

    def version(self) -> str:
        """The environment's Python version; a Problem when it cannot be used."""
        if not (self.folder / "pyvenv.cfg").exists():
            raise Problem(f"{self.folder} is not a virtual environment: rename it and start again.")
        version = ask([self.python, "-c", "import sys, pip; print(sys.version.split()[0])"])
        if not version or release(version) < (3, 11):
            why = f"has Python {version}" if version else "is broken"
            raise Problem(
                f"The environment {self.folder} {why}: python3 lab.py --reset rebuilds it."
            )
        return version

    def has(self, extras: list[str]) -> bool:
        code = f"import importlib.util as u; assert all(map(u.find_spec, {modules(extras)}))"
        return ask([self.python, "-c", code]) is not None

    def remove(self) -> None:
        """Delete the environment, and nothing that is not one."""
        if not self.folder.exists() and not self.folder.is_symlink():
            return
        ours = (self.folder / "pyvenv.cfg").exists() or self.unfinished.exists()
        if self.folder.is_symlink() or not ours:
            raise Problem(f"{self.folder} is not a virtual environment: it was left alone.")
        if Path(sys.prefix).resolve() == self.folder.resolve():
            raise Problem(f"{sys.executable} cannot rebuild itself: use a Python outside .venv.")
        shutil.rmtree(self.folder)

    def fingerprint(self, version: str) -> str:
        project = (self.root / "pyproject.toml").read_bytes()
        facts = (project, TORCH_TESTED, version, str(self.root))
        return hashlib.sha256(repr(facts).encode()).hexdigest()

    def read_stamp(self) -> dict:
        try:
            stamp = json.loads(self.stamp.read_text(encoding="utf-8"))
            return {"fingerprint": stamp["fingerprint"], "extras": list(stamp["extras"])}
        except (OSError, ValueError, TypeError, KeyError):
            return {}

    def pip(self, *arguments: str) -> list[str]:
        options = ["--no-input", "--disable-pip-version-check"]
        return [str(self.python), "-m", "pip", "install", *options, *arguments]

    def must(self, command: list[str]) -> None:
        failed, errors = self.tool(command)
        if failed:
            known = diagnosis(errors, self.root)
            if not known:
                self.errors.write_text(errors, encoding="utf-8")
            raise Problem(
                known
                or f"The set-up failed ({last_line(errors)}; more in {self.errors}): start "
                "again, or rebuild the environment with python3 lab.py --reset."
            )

    def check_space(self, needed: float) -> None:
        free = shutil.disk_usage(self.root).free / 1e9
        if free < needed:
            raise Problem(
                f"The disk is full: the set-up needs about {needed:g} GB in {self.root} and "
                f"{free:.1f} GB are free; free some space, then start again."
            )


def command_line(action: str, python: Path, root: Path, rest: list[str]) -> list[str]:
    """The program that lab.py ends in."""
    if action != "open":
        module = {"test": ["pytest", *AT_ONCE], "doctor": ["llmserve_lab.doctor"]}[action]
        return [str(python), "-m", *module, *rest]
    as_root = ["--allow-root"] if hasattr(os, "geteuid") and os.geteuid() == 0 else []
    places = [f"--ServerApp.root_dir={root}", f"--LabApp.default_url={FIRST_PAGE}"]
    return [str(python), "-m", "jupyterlab", *places, *as_root, *rest]


def variables(environment: Environment) -> dict[str, str]:
    """What activates the environment and shows `root/labconfig` to Jupyter (no news pop-up)."""
    env = {**os.environ, "VIRTUAL_ENV": str(environment.folder)}
    for name, first in (("PATH", environment.bin), ("JUPYTER_CONFIG_PATH", environment.root)):
        env[name] = os.pathsep.join(filter(None, [str(first), env.get(name)]))
    return env


def become(command: list[str], root: Path, env: dict[str, str]) -> int:
    """Run the command from root in this process's place (Windows: wait for it)."""
    os.chdir(root)
    if os.name != "nt":
        os.execve(command[0], command, env)
    with subprocess.Popen(command, env=env) as process:
        while process.returncode is None:
            try:
                process.wait()
            except KeyboardInterrupt:  # the child got it too, and decides
                continue
    return process.returncode


def parse(arguments: list[str]) -> tuple[str, bool, list[str]]:
    """The action, whether to reset, and what is passed on."""
    action = "open"
    if arguments and not arguments[0].startswith("-"):
        action, arguments = arguments[0], arguments[1:]
    if action not in ACTIONS:
        raise Problem(f"{action!r} is not a command of lab.py: see python3 lab.py --help.")
    rest = [argument for argument in arguments if argument != "--reset"]
    return action, len(rest) < len(arguments), rest


def main(arguments: list[str], root: Path = ROOT, tool=run_tool) -> int:
    if arguments[:1] in (["-h"], ["--help"]):
        print(str(__doc__).strip())
        return 0
    try:
        action, reset, rest = parse(arguments)
        environment = Environment(root, tool)
        if reset:
            environment.remove()
        environment.prepare(ACTIONS[action])
        command = command_line(action, environment.python, root, rest)
        return become(command, root, variables(environment))
    except KeyboardInterrupt:
        print("\nlab.py: stopped; start it again to go on from here.", file=sys.stderr)
        return 130
    except Problem as problem:
        print(f"lab.py: {problem}", file=sys.stderr)
    except OSError as error:
        print(f"lab.py: {diagnosis(str(error), root) or error}", file=sys.stderr)
    return 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
