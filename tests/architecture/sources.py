"""The repository as syntax trees: which module imports which, read from the files and never by importing them."""

from __future__ import annotations

import ast
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = ("helix", "approvals", "config", "demo")


@dataclass(frozen=True)
class Module:
    """A source file by its dotted name."""

    name: str
    path: Path
    tree: ast.Module

    @property
    def package(self) -> str:
        """What relative imports start from."""
        return self.name if self.path.name == "__init__.py" else self.name.rpartition(".")[0]


@cache
def modules(*packages: str) -> tuple[Module, ...]:
    """Every module of the packages but migrations, which are history."""
    return tuple(
        Module(_dotted(path), path, ast.parse(path.read_text(), str(path)))
        for package in packages
        for path in sorted((ROOT / package).rglob("*.py"))
        if "migrations" not in path.parts
    )


def imports_of(module: Module) -> Iterator[tuple[str, int]]:
    """The dotted name of everything a module imports, wherever in it, with the line.

    ``from a import b`` counts as ``a.b`` where that is a module of the repository, else as ``a``.
    """
    for node in ast.walk(module.tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield alias.name, node.lineno
        elif isinstance(node, ast.ImportFrom):
            base = _base_of(module, node)
            for alias in node.names:
                inner = f"{base}.{alias.name}"
                yield (inner if is_module(inner) else base), node.lineno


def is_module(name: str) -> bool:
    path = ROOT.joinpath(*name.split("."))
    return path.with_suffix(".py").exists() or (path / "__init__.py").exists()


@cache
def tracked_files() -> tuple[Path, ...]:
    """Every file that git tracks and that still exists."""
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, check=True).stdout.decode()
    return tuple(path for name in listed.split("\0") if name and (path := ROOT / name).is_file())


def _dotted(path: Path) -> str:
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def _base_of(module: Module, node: ast.ImportFrom) -> str:
    if not node.level:
        return node.module or ""
    package = module.package.split(".")
    above = package[: len(package) - node.level + 1]
    return ".".join((*above, *filter(None, [node.module])))
