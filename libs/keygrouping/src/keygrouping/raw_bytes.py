"""The bytes of a buffer as kernels pass them on to each other; needs numba, see `keygrouping.compiled`.

numba counts the references to an array at each call that takes one, by atomic instructions: for a function that looks
at few bytes that costs several times what it does. A view is an address and a size, which are passed on for nothing.
It is good for as long as its buffer is.
"""

from typing import Any, TypeAlias

from llvmlite import ir  # type: ignore[import-untyped]
from numba.core import config, types
from numba.core.errors import TypingError
from numba.extending import intrinsic

View: TypeAlias = Any
"""Address and size of a buffer."""

_VIEW = types.UniTuple(types.int64, 2)  # type: ignore[no-untyped-call]


@intrinsic
def _view_of(_: Any, data: Any) -> Any:
    if data.ndim != 1 or data.layout != "C" or data.dtype != types.uint8:
        raise TypingError("a view is of bytes that lie one after the other")

    def codegen(context: Any, builder: Any, signature: Any, given: Any) -> Any:
        array = context.make_array(signature.args[0])(context, builder, given[0])
        parts = (builder.ptrtoint(array.data, array.nitems.type), array.nitems)
        return context.make_tuple(builder, signature.return_type, parts)

    return _VIEW(data), codegen


def _address(context: Any, builder: Any, place: Any, size: int) -> Any:
    """Where so many bytes lie, from view and place. With NUMBA_BOUNDSCHECK it looks first whether they are there."""
    view, at = place
    address, held = (builder.extract_value(view, i) for i in range(2))
    if config.BOUNDSCHECK:  # type: ignore[attr-defined]
        beyond = builder.icmp_signed(">", builder.add(at, at.type(size)), held)
        before = builder.icmp_signed("<", at, at.type(0))
        with builder.if_then(builder.or_(beyond, before)):
            context.call_conv.return_user_exc(builder, IndexError, ("no such bytes",))
    return builder.add(address, at)


def _load(kind: Any) -> Any:
    """Loads a number of some kind."""

    def codegen(context: Any, builder: Any, _: Any, given: Any) -> Any:
        address = _address(context, builder, given, kind.bitwidth // 8)
        return builder.load(builder.inttoptr(address, context.get_value_type(kind).as_pointer()), align=1)

    return codegen


@intrinsic
def _byte(_: Any, view: Any, at: Any) -> Any:  # noqa: ARG001
    return types.uint8(_VIEW, types.int64), _load(types.uint8)


@intrinsic
def _eight(_: Any, view: Any, at: Any) -> Any:  # noqa: ARG001
    return types.uint64(_VIEW, types.int64), _load(types.uint64)


@intrinsic
def _not_plain(_: Any, view: Any, at: Any) -> Any:  # noqa: ARG001
    def codegen(context: Any, builder: Any, __: Any, given: Any) -> Any:
        many = ir.VectorType(ir.IntType(8), 32)
        address = _address(context, builder, given, 32)
        text = builder.load(builder.inttoptr(address, many.as_pointer()), align=1)
        blank, quote, backslash = (ir.Constant(many, [sign] * 32) for sign in (32, 34, 92))
        # What is no ASCII is negative as a signed number, so below a blank as well.
        odd = builder.icmp_signed("<", text, blank)
        for sign in (quote, backslash):
            odd = builder.or_(odd, builder.icmp_signed("==", text, sign))
        return builder.zext(builder.bitcast(odd, ir.IntType(32)), ir.IntType(64))

    return types.uint64(_VIEW, types.int64), codegen


@intrinsic
def _trailing_zeros(_: Any, number: Any) -> Any:  # noqa: ARG001
    def codegen(context: Any, builder: Any, __: Any, given: Any) -> Any:
        return builder.cttz(given[0], context.get_constant(types.boolean, False))

    return types.int64(types.uint64), codegen


view_of: Any = _view_of
"""view_of(data): the view of an array of bytes that lie one after the other."""

byte: Any = _byte
"""byte(view, at): the byte there; nothing looks whether there is one."""

eight: Any = _eight
"""eight(view, at): eight bytes from there on as a little-endian number; nothing looks whether they are there."""

not_plain: Any = _not_plain
"""not_plain(view, at): a bit for each of 32 bytes from there on, the lowest for the first, that is 1 if the byte is a
control character, a quote, a backslash, or no ASCII; nothing looks whether they are there.
"""

trailing_zeros: Any = _trailing_zeros
"""trailing_zeros(number): the zero bits below the lowest one of 64; 64 if there is none."""
