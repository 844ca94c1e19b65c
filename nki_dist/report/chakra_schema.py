"""The messages of Chakra's execution traces that ours are made of, with their field numbers.

Fields and numbers follow `schema/protobuf/et_def.proto` of MLCommons' Chakra, version 1.0.0, whose
package isn't on the package index; what ours never have is left out. They live in a pool of their
own, so that Chakra's can be loaded beside them. Needs protobuf (`pip install 'nki_dist[chakra]'`).
"""

from __future__ import annotations

from functools import cache
from types import SimpleNamespace
from typing import Any, Final

PACKAGE: Final = "ChakraProtoMsg"
COMP, SEND, RECV, COLL = 4, 5, 6, 7  # NodeType
ALL_REDUCE, ALL_GATHER, ALL_TO_ALL, REDUCE_SCATTER = 0, 2, 6, 7  # CollectiveCommType

# Name, number and type of each field; [] for repeated ones.
_MESSAGES: Final = {
    "AttributeProto": (
        ("name", 1, "string"),
        ("int32_val", 7, "int32"),
        ("int64_val", 9, "int64"),
        ("uint32_val", 11, "uint32"),
        ("uint64_val", 13, "uint64"),
        ("bool_val", 27, "bool"),
        ("string_val", 29, "string"),
    ),
    "GlobalMetadata": (("version", 1, "string"), ("attr", 2, "AttributeProto[]")),
    "Node": (
        ("id", 1, "uint64"),
        ("name", 2, "string"),
        ("type", 3, "int32"),  # an enumeration, which is sent as the same number
        ("data_deps", 5, "uint64[]"),
        ("start_time_micros", 6, "uint64"),
        ("duration_micros", 7, "uint64"),
        ("attr", 10, "AttributeProto[]"),
    ),
}


@cache
def schema() -> Any:
    """A namespace with the classes of the messages.

    Raises:
        ImportError: protobuf isn't there.
    """
    from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

    kinds = descriptor_pb2.FieldDescriptorProto
    file = descriptor_pb2.FileDescriptorProto(
        name="nki_dist/et_def.proto", package=PACKAGE, syntax="proto3"
    )
    for name, fields in _MESSAGES.items():
        message = file.message_type.add(name=name)
        valued = any(field.endswith("_val") for field, _, _ in fields)
        if valued:
            message.oneof_decl.add(name="value")
        for field, number, kind in fields:
            made = message.field.add(name=field, number=number)
            many, kind = kind.endswith("[]"), kind.removesuffix("[]")
            made.label = kinds.LABEL_REPEATED if many else kinds.LABEL_OPTIONAL
            if kind in _MESSAGES:
                made.type, made.type_name = kinds.TYPE_MESSAGE, f".{PACKAGE}.{kind}"
            else:
                made.type = getattr(kinds, f"TYPE_{kind.upper()}")
            if field.endswith("_val"):
                made.oneof_index = 0
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    found = (pool.FindMessageTypeByName(f"{PACKAGE}.{name}") for name in _MESSAGES)
    classes = dict(zip(_MESSAGES, map(message_factory.GetMessageClass, found)))
    return SimpleNamespace(**classes)
