"""Calls of a tree's methods that reach its kernel without Python code, which takes most of the time of a small batch.

Each is a compiled function with the signature of METH_FASTCALL, which takes the place of a method of the class. It
reads whatever ``direct_arguments.py`` can, by position or by name. Whatever else a call is, and whatever its kernel
does not do at once, is left to the method in Python, with its conversions, turns and messages. So nothing but the time
tells which of the two has answered.

A class takes part from its first tree on, so that a bound method that is kept does too, and a tree once :func:`open_to`
has put the addresses of its kernels into words that it holds in a slot.
"""

import ctypes
import functools
import importlib
import inspect
import sys
from collections.abc import Sequence
from typing import Any

import numpy as np
from llvmlite import binding, ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from . import arguments, direct_arguments
from .compiling import compiler, kept_cfunc
from .contract import SumTree
from .direct_arguments import (
    ARRAY,
    DATA,
    ITEMS,
    MOST,
    NONE,
    SYMBOL,
    WORDS,
    drop,
    in_order,
    keep_for_good,
    of_process,
    read,
)
from .kernels.header import DONE, LENDING_SCRATCH, SCRATCH, WORD, inner
from .lanes import load_i64, load_real, stack_words, store_i64, store_real, word_of

_LONG = 64  # elements from which on other threads may run meanwhile, which takes 20 ns
_SLOT = SumTree.__basicsize__  # of the words in a tree: the first one of the class
FAILED = -1  # of a kernel that raises

# Words of the process after those of arguments: names of parameters and of methods in Python.
_INDEX, _UNIFORMS, _EXCLUDE, _INDICES, _PRIORITIES, _SAMPLE_IN_PYTHON, _UPDATE_IN_PYTHON, END = np.arange(8) + WORDS
_NAMES = "uniforms", "exclude", "indices", "priorities", "_sample_in_python", "_update_in_python"
# Words of a tree: for each kernel its address, and others.
_TREE, _LEAF, _LEAF_BYTES, _HIGHEST, _SAMPLE, _UPDATE, _WITHOUT, _ROOM = np.array([0, 1, 2, 3, 4, 5, 6, 8])
_NEW_ARRAY, NEW_RECORD = "fanout_new_array", "fanout_new_record"  # symbols

_word, _int = types.int64, types.int32
new_array = types.ExternalFunction(_NEW_ARRAY, _word(_word, _int, _word, _int, _word, _word, _int, _int, _word))
new_tuple = types.ExternalFunction("PyTuple_New", _word(_word))
get_attribute = types.ExternalFunction("PyObject_GetAttr", _word(_word, _word))
call_object = types.ExternalFunction("PyObject_Vectorcall", _word(_word, _word, _word, _word))
keep = types.ExternalFunction("Py_IncRef", types.void(_word))
let_others_run = types.ExternalFunction("PyEval_SaveThread", _word())
run_again = types.ExternalFunction("PyEval_RestoreThread", types.void(_word))


@intrinsic
def call_kernel(typingctx: Any, address: Any, arguments: Any) -> Any:
    """What a kernel returns, called as numba does, or FAILED; an array is (address, elements, bytes of an element)."""

    def emit(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        none, kinds, given = ir.Constant(ir.IntType(64), 0), [], []
        for kind, value in zip(arguments, cgutils.unpack_tuple(builder, values[1]), strict=True):
            whole = [value]
            if isinstance(kind, types.UniTuple):
                at, size, width = cgutils.unpack_tuple(builder, value)
                whole = [none, none, size, width, at, size, width]  # owner, object, elements, .., shape, strides
            given += whole
            kinds += [types.int64] * 7 if len(whole) > 1 else [kind]
        kernel = context.call_conv.get_function_type(types.int64, kinds)
        results = [cgutils.alloca_once(builder, result.pointee) for result in kernel.args[:2]]
        packed = context.get_arg_packer(kinds).as_arguments(builder, given)
        status = builder.call(builder.inttoptr(values[0], kernel.as_pointer()), [*results, *packed])
        failed = ir.Constant(ir.IntType(64), FAILED)
        return builder.select(cgutils.is_null(builder, status), builder.load(results[0]), failed)

    return types.int64(types.int64, arguments), emit


@inner
def _run(words: int, method: int, arguments: Any) -> int:
    """The status of a tree's kernel, whose form has no bytes."""
    return call_kernel(load_i64(words + WORD * method), (load_i64(words), False, 0, *arguments))


@inner
def _words_of(tree: int, method: int) -> int:
    """The words of a tree whose kernel for a method is compiled; else 0."""
    held = load_i64(tree + _SLOT)
    words = load_i64(held + DATA) if held != 0 else 0
    return words if words != 0 and load_i64(words + WORD * method) != 0 else 0


@inner
def call_python(method: int, owner: int, arguments: int, count: int, names: int) -> int:
    """Call the method in Python whose name is a word of the process; returns what it does, 0 where it raises."""
    bound = get_attribute(owner, of_process(method))
    result = call_object(bound, arguments, count, names) if bound != 0 else 0
    drop(bound)
    return result


def _sample(tree: int, arguments: int, count: int, names: int) -> int:
    given = in_order(arguments, count, names, _UNIFORMS, 2, stack_words(2))
    exclude = word_of(given, 1) if given != 0 else 0
    has_excluded = exclude != 0 and exclude != of_process(NONE)
    words = _words_of(tree, _WITHOUT if has_excluded else _SAMPLE) if given != 0 else 0
    uniforms, left, size, excluded = 0, 0, 0, 0
    if words != 0 and load_i64(given) != 0:
        uniforms, size, _ = read(load_i64(given), stack_words(MOST), 0)
    if has_excluded and size > 0:
        left, excluded, _ = read(exclude, stack_words(MOST), 1)
    if size > 0 and (not has_excluded or 0 < LENDING_SCRATCH * excluded <= SCRATCH * MOST):
        shape, kind, status = stack_words(1), of_process(ARRAY), DONE
        store_i64(shape, size)
        indices = new_array(kind, 1, shape, of_process(_INDEX), 0, 0, 0, 0, 0)
        leaf = load_i64(words + WORD * _LEAF)
        priorities = new_array(kind, 1, shape, leaf, 0, 0, 0, 0, 0) if indices != 0 else 0
        if priorities != 0:
            values, found = (uniforms, size, WORD), (load_i64(indices + DATA), size, WORD)
            leaves = (load_i64(priorities + DATA), size, load_i64(words + WORD * _LEAF_BYTES))
            others = let_others_run() if size >= _LONG else 0
            if has_excluded:
                room = words + WORD * _ROOM, SCRATCH * MOST, WORD
                status = _run(words, _WITHOUT, (values, (left, excluded, WORD), found, leaves, room))
            else:
                status = _run(words, _SAMPLE, (values, True, found, leaves))
            if others != 0:
                run_again(others)
            pair = new_tuple(2) if status == DONE else 0
            if pair != 0:
                store_i64(pair + ITEMS, indices)
                store_i64(pair + ITEMS + WORD, priorities)
                return pair
        drop(indices)
        drop(priorities)
        if status == DONE:
            return 0  # memory ran out, which is the error that is set
    return call_python(_SAMPLE_IN_PYTHON, tree, arguments, count, names)


def _update(tree: int, arguments: int, count: int, names: int) -> int:
    given = in_order(arguments, count, names, _INDICES, 2, stack_words(2))
    words = _words_of(tree, _UPDATE) if given != 0 and load_i64(given) != 0 and word_of(given, 1) != 0 else 0
    where, values, size, told, room = 0, 0, 0, 0, stack_words(MOST)
    if words != 0:
        where, size, _ = read(load_i64(given), stack_words(MOST), 1)
    if size > 0:
        values, told, is_scalar = read(word_of(given, 1), room, 0)
        if is_scalar and told == 1 and size > 1:  # one priority for all
            value = load_real(values, 0.0)
            for j in range(size):
                store_real(room + WORD * j, value)
            values, told = room, size
    if size > 0 and told == size:
        scratch, highest = (words + WORD * _ROOM, SCRATCH * MOST, WORD), load_real(words + WORD * _HIGHEST, 0.0)
        others = let_others_run() if size >= _LONG else 0
        status = _run(words, _UPDATE, (highest, (where, size, WORD), (values, size, WORD), scratch))
        if others != 0:
            run_again(others)
        if status == DONE:
            keep(of_process(NONE))
            return of_process(NONE)
    return call_python(_UPDATE_IN_PYTHON, tree, arguments, count, names)


_METHODS = {
    "sample": (_sample, "($self, uniforms, exclude=None)"),
    "update": (_update, "($self, indices, priorities)"),
}
_SERVED = {"search": _SAMPLE, "search_without": _WITHOUT, "update": _UPDATE}  # by kernel
_FASTCALL = 0x82  # METH_FASTCALL | METH_KEYWORDS
_NEW_ARRAY_AT = 93  # PyArray_New in NumPy's table of functions, PyArray_NewFromDescr after it
process = np.zeros(END + 32, np.int64)
_kept: dict[str, tuple[Any, ...]] = {}  # by method, what others have the addresses of
opened: dict[type, bool] = {}  # classes of trees, and whether these take part


def open_class(kind: Any) -> None:
    """Put the compiled functions into a class of trees in place of its methods in Python.

    It does nothing for a subclass, which may override what the methods in Python call, or where objects are laid out in
    another way, as in builds without the GIL.
    """
    if kind not in opened:
        compiler.run(_open, kind)


def open_to(tree: Any, kernel: Any, signature: tuple[Any, ...]) -> None:
    """Let calls of a tree's method reach the kernel that serves it, compiled for the signature."""
    served = _SERVED.get(kernel.__name__)
    if served is None or not opened.get(type(tree)):
        return
    if not hasattr(tree, "_direct"):
        words = np.zeros(_ROOM + SCRATCH * MOST, np.int64)
        words[[_TREE, _LEAF, _LEAF_BYTES]] = tree._address, tree.dtype.num, tree.dtype.itemsize
        words.view(np.float64)[_HIGHEST] = tree.largest_priority
        tree._direct, tree._scratch = words, words[_ROOM:]
    if ctypes.c_void_p.from_address(id(tree) + _SLOT).value == id(tree._direct):
        tree._direct[served] = address_of(kernel, signature)


def _open(kind: Any) -> None:
    if kind in opened:  # by another thread meanwhile
        return
    opened[kind] = "_direct" in vars(kind) and can_replace()
    if opened[kind]:
        _kept.update(replace_methods(kind, _METHODS))


@functools.cache
def can_replace() -> bool:
    """Whether objects are laid out as compiled functions take them; these find symbols and words of the process."""
    if object.__basicsize__ != 2 * WORD or sys.byteorder != "little":
        return False
    array = importlib.import_module("numpy._core._multiarray_umath")
    table = function_of("PyCapsule_GetPointer", ctypes.c_void_p, ctypes.py_object, ctypes.c_void_p)
    at = table(array._ARRAY_API, None) + WORD * _NEW_ARRAY_AT
    for number, symbol in enumerate((_NEW_ARRAY, NEW_RECORD)):  # next to each other
        binding.add_symbol(symbol, ctypes.c_void_p.from_address(at + WORD * number).value)
    binding.add_symbol(SYMBOL, int(process.ctypes.data))
    direct_arguments.fill_words(process)
    arguments.told_of_tensors.append(functools.partial(direct_arguments.know_tensors, process))
    process[_INDEX] = np.dtype(np.int64).num
    name_words(process, _UNIFORMS, _NAMES)
    keep_for_good(process)
    return True


def name_words(words: Any, first: int, names: Sequence[str]) -> None:
    """Put the names, as calls spell them, into words of the process from the ``first`` on."""
    names = [sys.intern(name) for name in names]
    words[first : first + len(names)] = [id(name) for name in names]
    keep_for_good(names)


def replace_methods(kind: Any, methods: dict[str, tuple[Any, ...]]) -> dict[str, tuple[Any, ...]]:
    """Put compiled functions in place of those methods that are the class's own, and return what is kept for them.

    ``methods`` are by name (function, signature). A method that was patched before stays as it is. That in Python
    stays at hand as ``_NAME_in_python``.
    """
    new = function_of("PyDescr_NewMethod", ctypes.py_object, ctypes.py_object, ctypes.c_void_p)
    kept = {}
    for method, (function, signature) in methods.items():
        plain = vars(kind).get(method)
        if getattr(getattr(plain, "__code__", None), "co_qualname", None) != f"{kind.__qualname__}.{method}":
            continue
        compiled = kept_cfunc(_word(*[_word] * 4), function, error_model="numpy")
        text = f"{method}{signature}\n--\n\n{inspect.getdoc(plain)}"  # as inspect.signature wants it
        strings = [ctypes.create_string_buffer(each.encode()) for each in (method, text)]
        name, documentation = map(ctypes.addressof, strings)
        definition = np.array([name, compiled.address, _FASTCALL, documentation])  # a PyMethodDef
        kept[method] = plain, compiled, strings, definition
        setattr(kind, f"_{method}_in_python", plain)
        setattr(kind, method, new(kind, int(definition.ctypes.data)))
    keep_for_good(kept)
    return kept


def address_of(kernel: Any, signature: tuple[Any, ...]) -> int:
    """The address of a kernel compiled for a signature, as :func:`call_kernel` takes it."""
    compiled = kernel.overloads[signature]
    return int(compiled.library.get_pointer_to_function(compiled.fndesc.llvm_func_name))


def function_of(name: str, *kinds: Any) -> Any:
    """A function of CPython, by the types of what it returns and takes."""
    return ctypes.PYFUNCTYPE(*kinds)((name, ctypes.pythonapi))
