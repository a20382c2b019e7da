"""Tests that all public names, commands and options are documented."""

from __future__ import annotations

import importlib
import importlib.util
import inspect
import re
from pathlib import Path

import pytest

import ncarl

DOCS = Path(__file__).parents[2] / "docs"
API = (DOCS / "api.md").read_text(encoding="utf-8")
LISTED = sorted(set(re.findall(r"^   (ncarl\.[\w.]+)$", API, flags=re.MULTILINE)))
MODULES = (
    *("datasets", "evaluation", "images", "io", "masks", "metrics", "panel", "plots"),
    *("ratings", "tables"),
)


def public_names(module):
    """Names of the public functions, classes and submodules of a module.

    Those of ``__all__`` if it exists, else those defined in the module.
    """
    names = getattr(module, "__all__", None)
    if names is None:
        names = [n for n, v in vars(module).items() if is_own(module, v)]
    return [name for name in names if name[0] != "_" and has_page(module, name)]


def has_page(module, name):
    """Whether a name of a module has its own page; constants have none."""
    value = getattr(module, name)
    return callable(value) or inspect.ismodule(value)


def is_own(module, value):
    """Whether a function or class is defined in a module."""
    kind = inspect.isfunction(value) or inspect.isclass(value)
    return kind and value.__module__ == module.__name__


def resolve(name):
    """The object of a dotted name."""
    home, _, last = name.rpartition(".")
    try:
        return getattr(importlib.import_module(home), last)
    except AttributeError:
        return importlib.import_module(name)


@pytest.mark.parametrize("name", MODULES)
def test_every_public_name_of_a_module_is_in_the_reference(name):
    module = importlib.import_module(f"ncarl.{name}")
    names = public_names(module)
    assert names
    missing = [
        one
        for one in names
        # Names exported by the package are listed there only.
        if f"ncarl.{name}.{one}" not in LISTED
        and not (f"ncarl.{one}" in LISTED and one in ncarl.__all__)
    ]
    assert not missing, f"docs/api.md lacks {missing} of ncarl.{name}"


def test_every_public_name_of_the_package_is_in_the_reference():
    modules = [f"ncarl.{name}" for name in MODULES]
    missing = [
        name
        for name in public_names(ncarl)
        if f"ncarl.{name}" not in LISTED and f"ncarl.{name}" not in modules
    ]
    assert not missing, f"docs/api.md lacks {missing}"


@pytest.mark.parametrize("name", LISTED)
def test_names_in_the_reference_exist_and_have_docstrings(name):
    value = resolve(name)
    assert value.__doc__, f"{name} has no docstring"
    assert value.__doc__.strip().splitlines()[0].endswith(".")
    if inspect.isfunction(value):
        assert ">>> " in value.__doc__, f"{name} has no example"


@pytest.fixture(scope="module")
def make_cli():
    """The script that generates parts of the command line page."""
    pytest.importorskip("typer")
    spec = importlib.util.spec_from_file_location("make_cli", DOCS / "make_cli.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_command_line_page_is_up_to_date(make_cli):
    page = make_cli.PAGE.read_text(encoding="utf-8")
    assert make_cli.renewed(page) == page, "run: python docs/make_cli.py"


def test_every_command_and_option_is_documented(make_cli):
    page = make_cli.PAGE.read_text(encoding="utf-8")
    sections = re.split(r"^## ncarl (\S+)$", page, flags=re.MULTILINE)
    told = dict(zip(sections[1::2], sections[2::2], strict=True))
    assert set(told) == set(make_cli.commands())
    for name, command in make_cli.commands().items():
        for parameter in command.params:
            for flag in (*parameter.opts, *parameter.secondary_opts):
                if flag.startswith("-") and flag not in ("--help", "-h"):
                    assert f"`{flag}`" in told[name], f"{flag} of ncarl {name}"


def test_section_of_an_unknown_command_raises(make_cli):
    with pytest.raises(ValueError, match="gone"):
        make_cli.renewed("<!-- ncarl gone -->\nold\n<!-- / -->")


def test_every_page_is_in_a_table_of_contents():
    entries = set()
    for page in DOCS.glob("*.md"):
        text = page.read_text(encoding="utf-8")
        for tree in re.findall(r"```\{toctree\}\n(.*?)```", text, flags=re.DOTALL):
            entries.update(tree.splitlines())
    for page in DOCS.glob("*.md"):
        assert page.stem in entries or page.stem == "index", page.name
