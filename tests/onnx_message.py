"""ONNX files as protobuf messages that can be changed: tests must not depend on a library that refuses hostile ones.

Fields are numbers, as in onnx.proto: of a node 1 operands, 2 results, 4 operator, 5 attributes, 7 domain;
of a graph 1 nodes, 5 initializers, 11 inputs, 12 outputs; of a model 7 graph, 8 operator sets, 14 metadata,
25 functions.
"""


def varint(number):
    number &= (1 << 64) - 1
    out = bytearray()
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    out.append(number)
    return bytes(out)


def read_varint(data, at):
    number = shift = 0
    while True:
        byte = data[at]
        at += 1
        number |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            return number, at


class Message:
    """A protobuf message as a list of [field, value]: integers, or bytes, or messages.

    `schema` maps the fields that are messages to their schemas.
    """

    def __init__(self, data, schema):
        self.fields = []
        at = 0
        while at < len(data):
            key, at = read_varint(data, at)
            field, wire = key >> 3, key & 7
            if wire == 0:
                value, at = read_varint(data, at)
            elif wire == 2:
                size, at = read_varint(data, at)
                value = bytes(data[at:at + size])
                at += size
                if field in schema:
                    value = Message(value, schema[field]())
            else:
                size = 4 if wire == 5 else 8
                value = (wire, bytes(data[at:at + size]))
                at += size
            self.fields.append([field, value])

    def bytes(self):
        out = bytearray()
        for field, value in self.fields:
            if isinstance(value, int):
                out += varint(field << 3) + varint(value)
            elif isinstance(value, tuple):
                out += varint(field << 3 | value[0]) + value[1]
            else:
                data = value.bytes() if isinstance(value, Message) else value
                out += varint(field << 3 | 2) + varint(len(data)) + data
        return bytes(out)

    def entries(self, field):
        return [entry for entry in self.fields if entry[0] == field]

    def values(self, field):
        return [value for number, value in self.fields if number == field]


def dimension():
    return {}


def shape():
    return {1: dimension}


def tensor_type():
    return {2: shape}


def type_proto():
    return {1: tensor_type}


def value_info():
    return {2: type_proto}


def tensor():
    return {}


def attribute():
    return {5: tensor, 6: graph}


def node():
    return {5: attribute}


def graph():
    return {1: node, 5: tensor, 11: value_info, 12: value_info, 13: value_info}


def model():
    return {7: graph, 8: dict, 14: dict, 25: lambda: {7: node}}


def graphs(message):
    """The main graph and every subgraph."""
    found = list(message.values(7))
    for each in found:
        for one in each.values(1):
            for attr in one.values(5):
                found += attr.values(6)
    return found


def nodes(message):
    return [one for each in graphs(message) for one in each.values(1)]


def names_of(message):
    names = []
    for each in graphs(message):
        names += [name for one in each.values(1) for name in one.values(2)]
        names += [info.values(1)[0] for info in each.values(11)]
        names += [value for held in each.values(5) for value in held.values(8)]
    return names


def read_model(path):
    with open(path, "rb") as file:
        return Message(file.read(), model())


def write_model(path, message):
    with open(path, "wb") as file:
        file.write(message.bytes())
