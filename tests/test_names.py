"""The names in svc are the field's words: none contains a word of ``names.txt``, and functions say what they do to what."""

from __future__ import annotations

import ast
import itertools
import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Final

import attrs
from twisted.trial.unittest import SynchronousTestCase

from tests.test_architecture import Module, modules_of

#: The words that no name contains, a line each: the word, and the words to use in its place.
WORDS: Final = Path(__file__).with_name("names.txt")

#: Names that contain one all the same, by module, with the reason.
EXCEPTIONS: Final = {
    ("workload.faults", "said"): "programs read this attribute of the errors that svc.client and svc.workload export",
    ("web.routes.expirations", "Endings"): "the OpenAPI document names its tag and its operations by the class",
    ("workload.versions", "told"): "programs may give this parameter of exported methods by keyword",
}

#: Of a hundred functions, how many may have a name of one word.
ONE_WORD_PERCENT: Final = 35

_PART: Final = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+")


def read_words() -> Mapping[str, str]:
    """Return the words of ``names.txt``, each with the words to use."""
    lines = (line for line in WORDS.read_text(encoding="utf-8").splitlines() if line and not line.startswith("#"))
    return {word: use.strip() for word, _, use in (line.partition(":") for line in lines)}


def split_name(name: str) -> list[str]:
    """Return the words of a name, which underscores and capitals divide, in small letters."""
    return [word.lower() for word in _PART.findall(name)]


def bound_names(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """Return all names that a module defines, with their lines: of functions, classes, parameters, attributes, variables."""
    for node in ast.walk(tree):
        match node:
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name) | ast.arg(arg=name):
                yield node.lineno, name
            case (
                ast.Name(id=name, ctx=ast.Store()) | ast.Attribute(attr=name, ctx=ast.Store()) | ast.alias(asname=str(name))
            ):
                yield node.lineno, name
            case ast.ExceptHandler(name=str(name)) | ast.MatchAs(name=str(name)) | ast.MatchStar(name=str(name)):
                yield node.lineno, name
            case ast.MatchMapping(rest=str(name)):
                yield node.lineno, name


def find_bad_names(module: Module, words: Mapping[str, str]) -> Iterator[str]:
    """Return the names of a module that contain one of these words, or its plural, in sentences that say what to use."""
    for line, name in [(1, module.name.rpartition(".")[2]), *bound_names(module.tree)]:
        if (module.name, name) in EXCEPTIONS:
            continue
        for part in split_name(name):
            word = part if part in words else part.removesuffix("s")
            if word in words:
                yield f"{module.name}:{line}: {name} contains '{part}'; use {words[word]}"


def function_names(module: Module) -> Iterator[str]:
    """Return the names of a module's functions without their leading underscores, but for Python's own special methods."""
    for node in ast.walk(module.tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and not re.fullmatch("__.*__", node.name):
            yield node.name.lstrip("_")


#: A name of a module, in text: ``module.name``.
_REFERENCE: Final = re.compile(r"``([a-z_]+)\.([A-Za-z_]\w*)(?:\(\))?``")


def find_stale_references(modules: Iterable[Module]) -> Iterator[str]:
    """Yield each ``module.name`` in the text of modules, as ``PATH: REFERENCE``, that no module of that name has."""
    modules = list(modules)
    names: dict[str, set[str]] = {}
    for module in modules:
        *rooms, last = module.name.split(".")
        names.setdefault(last, set()).update(name for _, name in bound_names(module.tree))
        names[last].update(module.names())
        for room, below in itertools.pairwise((*rooms, last)):
            names.setdefault(room, set()).add(below)
    for module in modules:
        for name, attribute in _REFERENCE.findall(module.path.read_text(encoding="utf-8")):
            if name in names and attribute not in names[name]:
                yield f"{module.path}: {name}.{attribute}"


class NameTests(SynchronousTestCase):
    """The names that svc defines."""

    def test_words(self) -> None:
        """No function, class, module, attribute, parameter or variable has a word of ``names.txt`` in its name."""
        words = read_words()
        self.assertGreater(len(words), 10)
        wrong = [each for module in modules_of() for each in find_bad_names(module, words)]
        if wrong:
            self.fail("use the field's words, or add an exception with its reason:\n" + "\n".join(wrong))

    def test_references(self) -> None:
        """Where docstrings and comments write ``module.name``, the module has that name."""
        self.assertEqual(list(find_stale_references(modules_of())), [])
        (module,) = (each for each in modules_of() if each.name == "authn.throttling")
        place = Path(self.mktemp())
        place.write_text("``throttling.Failures`` and ``throttling.Gone``, ``elsewhere.Gone``", encoding="utf-8")
        stale = [*find_stale_references([module, attrs.evolve(module, path=place)])]
        self.assertEqual(stale, [f"{place}: throttling.Gone"])

    def test_exceptions(self) -> None:
        """Each exception is a name that its module still defines, and needs to be one."""
        modules, words = {module.name: module for module in modules_of()}, read_words()
        for module, name in EXCEPTIONS:
            self.assertIn(name, {found for _, found in bound_names(modules[module].tree)})
            self.assertTrue(any(part in words for part in split_name(name)), name)

    def test_bad_name_is_found(self) -> None:
        """A name with such a word is found wherever it is defined, in capitals and in the plural; another isn't."""
        words = {"told": "text", "noun": "resource"}
        for text in (
            "def tell_told(): ...",
            "async def _told(): ...",
            "class ToldTexts: ...",
            "class TOLDText: ...",
            "def f(told): ...",
            "def f(*, told=1): ...",
            "def f(*told, **more): ...",
            "f = lambda told: 1",
            "TOLD = 1",
            "TOLD_MOST: int = 1",
            "self._told = 1",
            "for told in (): ...",
            "x = [1 for told in ()]",
            "with f() as told: ...",
            "(told := 1)",
            "import ast as told",
            "try: ...\nexcept OSError as told: ...",
            "match x:\n    case 1 as told: ...",
            "match x:\n    case [*told]: ...",
            "match x:\n    case {**told}: ...",
            "nouns = ()",
        ):
            found = list(find_bad_names(Module("policy.plan", ast.parse(text), 2), words))
            self.assertEqual(len(found), 1, text)
            self.assertIn("use resource" if "noun" in text else "use text", found[0])
        self.assertEqual(len(list(find_bad_names(Module("policy.told", ast.parse(""), 2), words))), 1)
        for text in ("untold = 1", "pronoun = 1", "x = told", "f(told=1)", "x = y.told"):
            self.assertEqual(list(find_bad_names(Module("policy.plan", ast.parse(text), 2), words)), [], text)

    def test_functions_are_verb_and_object(self) -> None:
        """Of a hundred functions at most 35 have a name of one word; special methods of Python aren't counted."""
        names = [name for module in modules_of() for name in function_names(module)]
        self.assertGreater(len(names), 1000)
        short = [name for name in names if len(split_name(name)) < 2]
        self.assertLessEqual(len(short) * 100, len(names) * ONE_WORD_PERCENT, "name functions by a verb and its object")

    def test_function_names_are_found(self) -> None:
        """Methods and nested functions are counted, without underscores; special methods aren't."""
        text = (
            "class A:\n    def __init__(self): ...\n    async def _read(self):\n        def read_all(): ...\ndef __x(): ..."
        )
        self.assertEqual(sorted(function_names(Module("policy.plan", ast.parse(text), 2))), ["read", "read_all", "x"])
