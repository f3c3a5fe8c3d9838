"""Calls of a tree's methods that reach its kernel without Python code, which takes most of the time of a small batch.

Each is a compiled function with the signature of METH_FASTCALL, which takes the place of a method of the class. It
reads arrays, numbers, lists and tensors, wherever that is exact, by position or by name. Whatever else a call is, and
whatever its kernel does not do at once, is left to the method in Python, with its conversions, turns and messages. So
nothing but the time tells which of the two has answered.

A class takes part from its first tree on, so that a bound method that is kept does too, and a tree once :func:`open_to`
has put the addresses of its kernels into words that it holds in a slot.

Arguments: indices become int64 and real numbers float64. What does not convert exactly, what has more than ``MOST``
elements and any other object is left to the method in Python, which converts or refuses it. A format is a kind of
number and its bytes, as DLPack tells kinds apart. Offsets in objects are those of CPython with its GIL, of NumPy's ABI,
and of DLPack 1.
"""

import ctypes
import functools
import importlib
import inspect
import math
import sys
from collections.abc import Sequence
from typing import Any

import numpy as np
from llvmlite import binding, ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from . import arguments
from .compiling import compiler, kept_cfunc
from .contract import SumTree
from .kernels.header import DONE, LENDING_SCRATCH, SCRATCH, WORD, inner
from .lanes import instruction, load_i64, load_real, stack_words, store_i64, store_real, word_of

MOST = 1024  # elements of a batch, beyond which Python takes a few percent of the time

KIND, DATA, _RANK, _SHAPE, _STRIDES, _DTYPE, _FLAGS = 8, 16, 24, 32, 40, 56, 64
ITEMS = tuple.__basicsize__
_LIST_ITEMS, _COUNT, _VALUE, _ORDER, _NUMBER = 24, 16, 16, 26, 28  # of lists and tuples, of scalars, of dtypes
_SWAPPED, _ALIGNED = ord(">"), 0x100
_DEVICE, _TENSOR_RANK, _CODE, _BITS, _LANES, _TENSOR_SHAPE, _TENSOR_STRIDES, _OFFSET = 8, 16, 20, 21, 22, 24, 32, 40
_CPU, _TENSOR_WORDS = 1, 6
_INT, _UNSIGNED, _FLOAT, _BFLOAT = 0, 16, 32, 64  # formats' kinds: DLPack's codes times 16
_LARGEST = 2.0**53 - 1  # below which an integer is a float64
_FORMATS = 24  # NumPy's numbers of types with a format are below it

_ZERO, _ONE, _WIDTH = np.array([0, 1, WORD])  # no literals, for each of which numba compiles a function anew

# Words of the process: objects, then for each number of NumPy's types its format and the type of its scalars.
ARRAY, FLOAT, INT, LIST, TUPLE, NONE, FALSE, TENSOR, IS_NEGATED, FILL, READER, _FORMAT = np.arange(12)
_SCALAR = _FORMAT + _FORMATS
WORDS = _SCALAR + _FORMATS
SYMBOL = "fanout_direct_calls"

_word, _int = types.int64, types.int32
call_method = types.ExternalFunction("PyObject_VectorcallMethod", _word(*[_word] * 4))
drop = types.ExternalFunction("Py_DecRef", types.void(_word))  # of no object, too
forget_error = types.ExternalFunction("PyErr_Clear", types.void())
_whole_number = types.ExternalFunction("PyLong_AsLongLongAndOverflow", _word(_word, _word))


@intrinsic
def of_process(typingctx: Any, number: Any) -> Any:
    """Return a word of the process."""

    def emit(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.load(builder.gep(context.get_c_value(builder, ir.IntType(64), SYMBOL), arguments))

    return _word(_word), emit


@instruction(_int(_word, _word, _word))
def _fill_tensor(builder: Any, function: Any, thing: Any, tensor: Any) -> Any:
    """Call DLPack's function at an address, which describes a tensor; returns 0 where it can."""
    kind = ir.FunctionType(ir.IntType(32), [thing.type, tensor.type]).as_pointer()
    return builder.call(builder.inttoptr(function, kind), [thing, tensor])


@instruction(_word(*[_word] * 5))
def _call_reader(builder: Any, function: Any, thing: Any, room: Any, is_index: Any, place: Any) -> Any:
    """Call :func:`_read` at its address."""
    given = [thing, room, is_index, place]
    kind = ir.FunctionType(thing.type, [each.type for each in given]).as_pointer()
    return builder.call(builder.inttoptr(function, kind), given)


@instruction(lambda address, like: like(_word, like))
def _load_packed(builder: Any, address: Any, like: Any) -> Any:
    """Return the number at an address that may be any, of the type of ``like``."""
    return builder.load(builder.inttoptr(address, like.type.as_pointer()), align=1)


@inner
def _load_small(address: int, like: Any) -> int:
    """Return a field of fewer bytes than a word."""
    return int(load_real(address, like))


@inner
def _load_integer(address: int, shape: int) -> Any:
    """Return an integer of a format (``shape``) as int64; one above it becomes negative, as NumPy casts it."""
    size = shape % 16
    if size == 8:
        return _load_packed(address, _ZERO)
    if size == 4:
        bits = np.int64(_load_packed(address, np.uint32(0)))
    elif size == 2:
        bits = np.int64(_load_packed(address, np.uint16(0)))
    else:
        bits = np.int64(_load_packed(address, np.uint8(0)))
    unused = 64 - 8 * size
    return bits if shape >= _UNSIGNED else bits << unused >> unused


@inner
def _copy_integers(source: int, stride: int, count: int, room: int, shape: int) -> bool:
    """Put ``count`` numbers of a format into the room as int64; False if it is none of integers."""
    for j in range(count if shape < _FLOAT else 0):
        store_i64(room + WORD * j, _load_integer(source + stride * j, shape))
    return shape < _FLOAT


@inner
def _copy_reals(source: int, stride: int, count: int, room: int, like: Any, largest: float) -> bool:
    """Put numbers such as ``like`` into the room as float64; False if one is beyond ``largest``, or none."""
    bad = 0
    for j in range(count):
        value = np.float64(_load_packed(source + stride * j, like))
        bad |= not abs(value) <= largest
        store_real(room + WORD * j, value)
    return bad == 0


@inner
def _copy_halves(source: int, stride: int, count: int, room: int, is_brain: int) -> bool:
    """Put numbers of 16 bits, float16 or bfloat16, into the room as float64; False if one is negative or no number."""
    parts, width, bias = stack_words(1), 7 if is_brain != 0 else 10, 127 if is_brain != 0 else 15
    bad = 0
    for j in range(count):
        bits: Any = np.int64(_load_packed(source + stride * j, np.uint16(0)))
        exponent, fraction = bits >> width, bits & ((1 << width) - 1)
        bad |= exponent > 2 * bias
        if exponent > 0:
            fraction += 1 << width
        else:
            exponent = 1
        store_i64(parts, (exponent - bias - width + 1023) << 52)  # a power of two as float64
        store_real(room + WORD * j, fraction * load_real(parts, 0.0))
    return bad == 0


@inner
def _copy_numbers(source: int, stride: int, count: int, room: int, shape: int, is_index: int) -> bool:
    """Put ``count`` numbers of a format into the room; False if they do not convert exactly."""
    if is_index != 0 or shape < _FLOAT:
        is_integer = _copy_integers(source, stride, count, room, shape)
        return is_integer and (is_index != 0 or _copy_reals(room, _WIDTH, count, room, _ZERO, _LARGEST))
    if shape == _FLOAT + 4:
        return _copy_reals(source, stride, count, room, np.float32(0.0), math.inf)
    if shape == _FLOAT + 8:
        return _copy_reals(source, stride, count, room, 0.0, math.inf)
    is_half = shape == _FLOAT + 2 or shape == _BFLOAT + 2
    return is_half and _copy_halves(source, stride, count, room, shape - _FLOAT - 2)


@inner
def _copy_number(thing: int, room: int, is_index: int, is_listed: int) -> bool:
    """Put a number, Python's or NumPy's, into the room; False if it does not convert exactly."""
    kind = load_i64(thing + KIND)
    if kind == of_process(FLOAT):
        store_real(room, load_real(thing + _VALUE, 0.0))
        return is_index == 0
    if kind == of_process(INT):
        overflow = stack_words(1)
        store_i64(room, _whole_number(thing, overflow))
        if _load_small(overflow, np.int32(0)) != 0:
            return False
        return is_index != 0 or _copy_reals(room, _WIDTH, _ONE, room, _ZERO, _LARGEST)
    for number in range(_FORMATS):
        if kind == of_process(_SCALAR + number):
            shape = of_process(_FORMAT + number)
            if is_index != 0 and is_listed != 0 and shape == _UNSIGNED + 8:
                return False  # beside integers with a sign NumPy makes floats of them
            return _copy_numbers(thing + _VALUE, _ZERO, _ONE, room, shape, is_index)
    return False


@inner
def _copy_items(thing: int, room: int, is_index: int, items: int) -> int:
    """Put the numbers of a list or tuple into the room; returns how many, 0 if one does not convert exactly."""
    count = load_i64(thing + _COUNT)
    if count > MOST:
        return 0
    for j in range(count):
        if not _copy_number(load_i64(items + WORD * j), room + WORD * j, is_index, _ONE):
            return 0
    return count


@inner
def _is_negated(thing: int) -> bool:
    """Whether a tensor's numbers are those of its memory with the other sign, as of ``torch.conj(z).imag``."""
    given = stack_words(1)
    store_i64(given, thing)
    answer = call_method(of_process(IS_NEGATED), given, 1, 0)
    drop(answer)
    return answer != of_process(FALSE)


@inner
def _copy_tensor(thing: int, room: int, is_index: int) -> int:
    """Put the numbers of a tensor on a CPU into the room; returns what :func:`_read` does.

    They are copied, because the tensor's memory may be freed by a thread that resizes it.
    """
    tensor = stack_words(_TENSOR_WORDS)
    if _fill_tensor(of_process(FILL), thing, tensor) != 0 or _is_negated(thing):
        forget_error()
        return 0
    rank, bits = _load_small(tensor + _TENSOR_RANK, np.int32(0)), _load_small(tensor + _BITS, np.uint8(0))
    size, stride = 1, 0
    if rank == 1:
        size, stride = load_i64(load_i64(tensor + _TENSOR_SHAPE)), load_i64(load_i64(tensor + _TENSOR_STRIDES))
    is_known = _load_small(tensor + _DEVICE, np.int32(0)) == _CPU and _load_small(tensor + _LANES, np.uint16(0)) == 1
    if not is_known or bits < 8 or rank > 1 or size > MOST or size == 0:
        return 0
    shape = 16 * _load_small(tensor + _CODE, np.uint8(0)) + bits // 8
    source = load_i64(tensor) + load_i64(tensor + _OFFSET)
    if not _copy_numbers(source, bits // 8 * stride, size, room, shape, is_index):
        return 0
    return size if rank == 1 else -1


@inner
def _read_array(thing: int, room: int, is_index: int, place: int) -> int:
    """Read an array of at most one dimension, as :func:`_read` reads any argument."""
    dtype, rank = load_i64(thing + _DTYPE), _load_small(thing + _RANK, np.int32(0))
    number, size, stride = _load_small(dtype + _NUMBER, np.int32(0)), 1, WORD
    if rank == 1:
        size, stride = load_i64(load_i64(thing + _SHAPE)), load_i64(load_i64(thing + _STRIDES))
    if rank > 1 or number >= _FORMATS or size > MOST or size == 0:
        return 0
    shape, source = of_process(_FORMAT + number), load_i64(thing + DATA)
    if shape == 0 or _load_small(dtype + _ORDER, np.uint8(0)) == _SWAPPED:
        return 0
    is_usual = shape == (_INT + 8 if is_index != 0 else _FLOAT + 8) and (stride == WORD or size == 1)
    if is_usual and load_i64(thing + _FLAGS) & _ALIGNED != 0:
        store_i64(place, source)
    elif not _copy_numbers(source, stride, size, room, shape, is_index):
        return 0
    return size if rank == 1 else -1


def _read(thing: int, room: int, is_index: int, place: int) -> int:
    """Put the address of an object's numbers ``[B]`` at ``place``; returns B, -1 for a scalar, 0 if they are not exact.

    They are indices (int64) or real numbers (float64), in the ``room`` of ``MOST`` words or where they are already.
    """
    kind = load_i64(thing + KIND)
    store_i64(place, room)
    if kind == of_process(ARRAY):
        return _read_array(thing, room, is_index, place)
    if kind == of_process(LIST) or kind == of_process(TUPLE):
        items = load_i64(thing + _LIST_ITEMS) if kind == of_process(LIST) else thing + ITEMS
        return _copy_items(thing, room, is_index, items)
    if kind == of_process(TENSOR):
        return _copy_tensor(thing, room, is_index)
    return -1 if _copy_number(thing, room, is_index, _ZERO) else 0


@inner
def read(thing: int, room: int, is_index: int) -> tuple[int, int, bool]:
    """Return (address of the numbers ``[B]``, B, whether it is a scalar) of an object; B = 0 if Python must convert it.

    See :func:`_read`, which is compiled once for all that call it.
    """
    place = stack_words(1)
    size = _call_reader(of_process(READER), thing, room, is_index, place)
    return load_i64(place), abs(size), size < 0


@inner
def in_order(arguments: int, count: int, names: int, first: int, most: int, room: int) -> int:
    """Return the address of a call's arguments in the order of its parameters, 0 for each that is not given.

    ``first`` is the word of the process with the name of the first of ``most`` parameters, the others follow. Returns
    0 for other names, for an argument given twice and for too many. ``room`` has ``most`` words.
    """
    named = load_i64(names + _COUNT) if names != 0 else 0
    if count > most:
        return 0
    for j in range(most):
        store_i64(room + WORD * j, load_i64(arguments + WORD * j) if j < count else 0)
    for k in range(named):
        name, at = load_i64(names + ITEMS + WORD * k), 0
        while at < most and of_process(first + at) != name:
            at += 1
        if at == most or word_of(room, at) != 0:
            return 0
        store_i64(room + WORD * at, load_i64(arguments + WORD * (count + k)))
    return room


def _fill_words(words: Any) -> None:
    """Fill the words of the process that reading arguments needs."""
    objects = np.ndarray, float, int, list, tuple, None, False
    words[: len(objects)] = [id(each) for each in objects]
    for letter in "bBhHiIlLqQefd":
        dtype = np.dtype(letter)
        kind = {"i": _INT, "u": _UNSIGNED, "f": _FLOAT}[dtype.kind]
        words[_FORMAT + dtype.num], words[_SCALAR + dtype.num] = kind + dtype.itemsize, id(dtype.type)
    reader = kept_cfunc(_word(*[_word] * 4), _read, error_model="numpy")
    words[READER] = reader.address
    keep_for_good(reader)


def keep_for_good(thing: object) -> None:
    """Never free an object, whose address machine code has, though modules be loaded again."""
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(thing))


def _know_tensors(words: Any, kind: Any) -> None:
    """Let compiled functions read tensors of torch's own class, if it offers DLPack's functions."""
    table = getattr(kind, "__dlpack_c_exchange_api__", None)
    if words[TENSOR] or table is None or kind.__module__ != "torch":
        return
    find = ctypes.PYFUNCTYPE(ctypes.c_void_p, ctypes.py_object, ctypes.c_char_p)
    at = find(("PyCapsule_GetPointer", ctypes.pythonapi))(table, b"dlpack_exchange_api")
    if ctypes.c_uint32.from_address(at).value == 1:  # the version of the layout
        words[IS_NEGATED] = id(sys.intern("is_neg"))
        # Behind the version and the previous table three functions, then that which fills a DLTensor and owns nothing.
        words[FILL] = ctypes.c_void_p.from_address(at + 5 * WORD).value
        words[TENSOR] = id(kind)


_LONG = 64  # elements from which on other threads may run meanwhile, which takes 20 ns
_SLOT = SumTree.__basicsize__  # of the words in a tree: the first one of the class
FAILED = -1  # of a kernel that raises

# Words of the process after those of arguments: names of parameters and of methods in Python.
_INDEX, _UNIFORMS, _EXCLUDE, _INDICES, _PRIORITIES, _SAMPLE_IN_PYTHON, _UPDATE_IN_PYTHON, END = np.arange(8) + WORDS
_NAMES = "uniforms", "exclude", "indices", "priorities", "_sample_in_python", "_update_in_python"
# Words of a tree: for each kernel its address, and others.
_TREE, _LEAF, _LEAF_BYTES, _HIGHEST, _SAMPLE, _UPDATE, _WITHOUT, _ROOM = np.array([0, 1, 2, 3, 4, 5, 6, 8])
_NEW_ARRAY, NEW_RECORD = "fanout_new_array", "fanout_new_record"  # symbols

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
    _fill_words(process)
    arguments.told_of_tensors.append(functools.partial(_know_tensors, process))
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
