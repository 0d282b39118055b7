"""Sketches of partials, looked at byte by byte before Spark decodes them; as `keygrouping.aggregate.sketch` does.

Spark's decoder throws, which ends the query, or reads what lies behind the array. So a sketch gets here only if it is
one that the workers write.
"""

from __future__ import annotations

from keygrouping.aggregate.sketch import HLL_START, LG_K, LG_SETS, REGISTERS
from pyspark.sql import Column
from pyspark.sql import functions as F

_BASE64 = "^[A-Za-z0-9+/]*={0,2}$"
_FLAGS = "(?:00|08|10|18)"
_EMPTY = "^0201070C03[01](?:C0008|400080{64})$"
_LIST = f"^0201070C{3:02X}{_FLAGS}0[1-7]08"
_SET = f"^0301070C(?:{'|'.join(f'{lg:02X}' for lg in LG_SETS)}){_FLAGS}0009....0000"
_HLL = f"^0A01070C00{_FLAGS}000A"
_COMPACT = "^.{10}[01]8"
_NO_VALUE = "^.{6}0[0-3]"
"""A coupon whose upper 6 bits are 0."""
_NOT_FINITE = "^(?:.{16}){0,2}.{12}F.[7F]F"
_NO_COUNT = "^(?!(?:..0.|0010)0000)"
_BEYOND = r"[^\x00-\x3f]"
_NO_COUPON = "00000000"
_COMPACT_EMPTY = "0201070C030C0008"

assert LG_K == 12, "the patterns are those of 4096 registers"


def sound(text: Column) -> Column:
    """The binary sketch of a base64 text, in a form that can be decoded and merged without harm; null if it is none."""
    data = F.when(text.rlike(_BASE64), F.try_to_binary(text, F.lit("base64")))
    digits = F.hex(data)
    list_count = F.conv(digits.substr(13, 2), 16, 10).cast("int")
    set_count = F.conv(F.concat(digits.substr(19, 2), digits.substr(17, 2)), 16, 10).cast("int")
    set_places = F.pow(F.lit(2), F.conv(digits.substr(9, 2), 16, 10).cast("int")).cast("int")
    return F.unhex(
        F.when(digits.rlike(_EMPTY), F.lit(_COMPACT_EMPTY))
        .when(digits.rlike(_LIST), _with_coupons(digits, 16, list_count, F.lit(8)))
        .when(digits.rlike(_SET) & (4 * set_count <= 3 * set_places), _with_coupons(digits, 24, set_count, set_places))
        .when(digits.rlike(_HLL) & _has_registers(data, digits), digits)
    )


def _with_coupons(digits: Column, start: int, count: Column, places: Column) -> Column:
    """In compact form, so that the decoder finds a place for each coupon; null if they are not as many as it says."""
    wanted = F.when(digits.rlike(_COMPACT), count).otherwise(places)
    body = digits.substr(F.lit(start + 1), F.length(digits) - start)
    coupons = F.filter(F.regexp_extract_all(body, F.lit("(.{8})"), 1), lambda coupon: coupon != _NO_COUPON)
    fits = (F.length(body) == 8 * wanted) & (F.size(coupons) == count) & (F.size(F.array_distinct(coupons)) == count)
    valued = ~F.exists(coupons, lambda coupon: coupon.rlike(_NO_VALUE))
    preamble = F.concat(digits.substr(1, 10), F.lit("08"), digits.substr(13, start - 12))
    return F.when(fits & valued, F.concat(preamble, F.array_join(coupons, "")))


def _has_registers(data: Column, digits: Column) -> Column:
    finite = ~digits.substr(17, 48).rlike(_NOT_FINITE)
    counted = ~digits.substr(65, 8).rlike(_NO_COUNT) & (digits.substr(73, 8) == _NO_COUPON)
    registers = F.decode(F.substring(data, HLL_START + 1, REGISTERS), "ISO-8859-1")
    return (F.length(data) == HLL_START + REGISTERS) & finite & counted & ~registers.rlike(_BEYOND)
