"""Kinds of structural mutations: what a rewrite could get wrong, or somebody could change in its files.

Each kind is a function of a random number generator and a `families.Copy`. It changes the copy and returns what it
did in a few words, or None where the family has nothing to change that way. KINDS lists them by name.
"""
import json
import os
import struct

from families import PRESETS, Copy
from onnx_message import Message, graphs, node, read_model, tensor, varint

FLOAT, UINT8, INT8, INT32, INT64, BOOL, FLOAT16 = 1, 2, 3, 6, 7, 9, 10
ATTENTION = {"Attention", "GroupQueryAttention", "PagedAttention", "MultiHeadAttention", "AttentionTile", "TensorScatter",
             "Softmax"}
OPPOSITES = {"Add": "Sub", "Sub": "Add", "Mul": "Div", "Div": "Mul", "Less": "LessOrEqual", "LessOrEqual": "Less",
             "Greater": "GreaterOrEqual", "GreaterOrEqual": "Greater", "And": "Or", "Or": "And", "Max": "Min", "Min": "Max",
             "Cos": "Sin", "Sin": "Cos", "Sigmoid": "Tanh", "Tanh": "Sigmoid", "Exp": "Neg", "Neg": "Exp", "Sqrt": "Neg",
             "ReduceMax": "ReduceMin", "ReduceSum": "ReduceMean", "ReduceMean": "ReduceSum"}


# Nodes and their parts.

def operator(one):
    return one.values(4)[0].decode()


def is_attention(one):
    return operator(one) in ATTENTION or operator(one).endswith("Sdpa") or one.values(7) == [b"ai.kvopt"]


def texts(one, field):
    return [value.decode() for value in one.values(field)]


def label(one):
    return "%s -> %s" % (operator(one), ", ".join(texts(one, 2)[:1]))


def owned_nodes(message):
    """Pairs of a graph and a node of it, of the main graph and all subgraphs."""
    return [(owner, one) for owner in graphs(message) for one in owner.values(1)]


def main_graph(message):
    return message.values(7)[0]


def name_of(info):
    return info.values(1)[0].decode()


def inputs_of(message):
    return {name_of(info): info for info in main_graph(message).values(11)}


def outputs_of(message):
    return {name_of(info): info for info in main_graph(message).values(12)}


def tensor_types(info):
    return [tensor_type for declared in info.values(2) for tensor_type in declared.values(1)]


def extents_of(tensor_type):
    return [extent for shape in tensor_type.values(2) for extent in shape.values(1)]


def type_of(info):
    """Element type and extents, numbers or names; 0 and none where they are not declared."""
    element = 0
    extents = []
    for tensor_type in tensor_types(info):
        element = (tensor_type.values(1) or [0])[0]
        for extent in extents_of(tensor_type):
            extents.append(extent.values(1)[0] if extent.values(1) else
                           extent.values(2)[0].decode() if extent.values(2) else "")
    return element, extents


def renamed_operands(message, names):
    """Replaces operands everywhere; how many there were."""
    count = 0
    for owner, one in owned_nodes(message):
        for entry in one.entries(1):
            new = names.get(entry[1].decode())
            if new is not None:
                entry[1] = new.encode()
                count += 1

    return count


def new_message(fields, schema):
    message = Message(b"", schema)
    message.fields = fields
    return message


def new_node(kind, operands, results, attributes=(), domain=b""):
    fields = [[1, name.encode()] for name in operands] + [[2, name.encode()] for name in results]
    fields.append([4, kind.encode()])
    for name, value in attributes:
        content = [[1, name.encode()]]
        if isinstance(value, float):
            content += [[2, (5, struct.pack("<f", value))], [20, 1]]
        else:
            content += [[3, value], [20, 2]]
        fields.append([5, new_message(content, {})])
    if domain:
        fields.append([7, domain])
    return new_message(fields, node())


def add_constant(message, name, element, numbers, extents=None):
    formats = {FLOAT: "<f", INT64: "<q", INT32: "<i", FLOAT16: "<e"}
    data = b"".join(struct.pack(formats[element], number) for number in numbers)
    extents = [len(numbers)] if extents is None else extents
    fields = [[1, extent] for extent in extents] + [[2, element], [8, name.encode()], [9, data]]
    main_graph(message).fields.append([5, new_message(fields, tensor())])
    return name


def insert_before(owner, before, new):
    """Puts nodes in front of a node of the graph; at the end where it is None."""
    at = len(owner.fields)
    for index, entry in enumerate(owner.fields):
        if entry[0] == 1 and (entry[1] is before or before is None):
            at = index if before is not None else index + 1
            if before is not None:
                break
    owner.fields[at:at] = [[1, one] for one in new]


class Site:
    """Where a mutation happens: a file and its message."""

    def __init__(self, rng, copy):
        files = copy.model_files()
        others = [name for name in files if name != "m.onnx"]
        self.name = rng.choice(others) if others and rng.random() < 0.6 else "m.onnx"
        self.role = copy.role(self.name)
        self.message = copy.message(self.name)
        self.nodes = owned_nodes(self.message)

    def attentions(self):
        return [(owner, one) for owner, one in self.nodes if is_attention(one)]

    def any_node(self, rng, condition, preferring_attention=True):
        """A node for which the condition holds, three times out of four one that attends."""
        fitting = [pair for pair in self.nodes if condition(pair[1])]
        attending = [pair for pair in fitting if is_attention(pair[1])]
        if preferring_attention and attending and rng.random() < 0.75:
            fitting = attending
        return rng.choice(fitting) if fitting else None

    def said(self, what):
        return "%s: %s" % (self.role if self.name == "m.onnx" else self.name, what)


# Operands and results.

def drop_operand(rng, copy):
    site = Site(rng, copy)
    found = site.any_node(rng, lambda one: one.entries(1))
    if not found:
        return None
    entries = found[1].entries(1)
    at = rng.randrange(len(entries))
    if at == len(entries) - 1 and rng.random() < 0.5:
        found[1].fields.remove(entries[at])
    else:
        entries[at][1] = b""
    return site.said("operand %d of %s dropped" % (at, label(found[1])))


def duplicate_operand(rng, copy):
    site = Site(rng, copy)
    found = site.any_node(rng, lambda one: len(one.entries(1)) > 1)
    if not found:
        return None
    one, other = rng.sample(range(len(found[1].entries(1))), 2)
    found[1].entries(1)[one][1] = found[1].entries(1)[other][1]
    return site.said("operand %d of %s is operand %d" % (one, label(found[1]), other))


def exchange_operands(rng, copy):
    site = Site(rng, copy)
    found = site.any_node(rng, lambda one: len(one.entries(1)) > 1)
    if not found:
        return None
    one, other = rng.sample(found[1].entries(1), 2)
    one[1], other[1] = other[1], one[1]
    return site.said("operands of %s exchanged: %s, %s" % (label(found[1]), one[1].decode(), other[1].decode()))


def two_alike(rng, site):
    attending = site.attentions()
    pairs = [(one, other) for _, one in attending for _, other in attending
             if one is not other and operator(one) == operator(other)]
    return rng.choice(pairs) if pairs else None


def exchange_operands_of_layers(rng, copy):
    site = Site(rng, copy)
    pair = two_alike(rng, site)
    if not pair:
        return None
    count = min(len(each.entries(1)) for each in pair)
    at = rng.choice([i for i in range(count) if pair[0].values(1)[i] != pair[1].values(1)[i]] or [0])
    one, other = (each.entries(1)[at] for each in pair)
    # A value that is computed after a node cannot be its operand: the earlier layer's is given to both.
    if rng.random() < 0.5:
        one[1], other[1] = other[1], one[1]
        return site.said("operand %d exchanged between %s and %s" % (at, label(pair[0]), label(pair[1])))
    other[1] = one[1]
    return site.said("operand %d of %s given to %s" % (at, label(pair[0]), label(pair[1])))


def exchange_results(rng, copy):
    site = Site(rng, copy)
    found = site.any_node(rng, lambda one: len(one.entries(2)) > 1)
    if not found:
        return None
    one, other = rng.sample(found[1].entries(2), 2)
    one[1], other[1] = other[1], one[1]
    return site.said("results of %s exchanged" % label(found[1]))


def exchange_results_of_layers(rng, copy):
    site = Site(rng, copy)
    pair = two_alike(rng, site)
    if not pair:
        return None
    at = rng.randrange(min(len(each.entries(2)) for each in pair))
    one, other = (each.entries(2)[at] for each in pair)
    one[1], other[1] = other[1], one[1]
    return site.said("result %d exchanged between %s and %s" % (at, label(pair[0]), label(pair[1])))


def exchange_outputs(rng, copy):
    site = Site(rng, copy)
    outputs = outputs_of(site.message)
    pairs = [(a, b) for a in outputs for b in outputs if a < b and type_of(outputs[a]) == type_of(outputs[b])]
    if not pairs:
        return None
    one, other = rng.choice(pairs)
    for _, each in site.nodes:
        for entry in each.entries(2):
            entry[1] = {one: other, other: one}.get(entry[1].decode(), entry[1].decode()).encode()
    renamed_operands(site.message, {one: other, other: one})
    return site.said("outputs %s and %s exchanged" % (one, other))


def drop_output(rng, copy):
    site = Site(rng, copy)
    entries = main_graph(site.message).entries(12)
    if len(entries) < 2:
        return None
    entry = rng.choice(entries)
    main_graph(site.message).fields.remove(entry)
    return site.said("output %s dropped" % name_of(entry[1]))


def drop_outputs(rng, copy):
    site = Site(rng, copy)
    kept = rng.choice(["none", "caches", "others"])
    pasts = {cache["present"] for cache in copy.manifest["caches"]}
    owner = main_graph(site.message)
    for entry in owner.entries(12):
        if kept == "none" or (name_of(entry[1]) in pasts) != (kept == "caches"):
            owner.fields.remove(entry)
    return site.said("outputs dropped, kept: %s" % kept)


def bypass_node(rng, copy):
    """What reads a node's result reads its first operand instead."""
    site = Site(rng, copy)
    outputs = outputs_of(site.message)
    found = site.any_node(rng, lambda one: len(one.entries(2)) == 1 and texts(one, 1) and texts(one, 1)[0] and
                          texts(one, 2)[0] not in outputs, preferring_attention=False)
    if not found:
        return None
    if not renamed_operands(site.message, {texts(found[1], 2)[0]: texts(found[1], 1)[0]}):
        return None
    return site.said("%s bypassed" % label(found[1]))


def read_stale_cache(rng, copy):
    """Attention reads a cache as it was before the new rows were written."""
    site = Site(rng, copy)
    scatters = [one for _, one in site.nodes if operator(one) in ("TensorScatter", "Concat") and
                texts(one, 1)[0] in inputs_of(site.message)]
    if not scatters:
        return None
    one = rng.choice(scatters)
    if not renamed_operands(site.message, {texts(one, 2)[0]: texts(one, 1)[0]}):
        return None
    return site.said("%s not read" % label(one))


# Attributes, operators, constants.

def change_attribute(rng, copy):
    site = Site(rng, copy)
    found = site.any_node(rng, lambda one: any(a.entries(2) or a.entries(3) for a in one.values(5)))
    if not found:
        return None
    attribute = rng.choice([a for a in found[1].values(5) if a.entries(2) or a.entries(3)])
    for entry in attribute.entries(2):
        number = struct.unpack("<f", entry[1][1])[0]
        entry[1] = (5, struct.pack("<f", rng.choice([0.5, 1.5, -1.0]) * number if number else 0.75))
    for entry in attribute.entries(3):
        change = rng.choice([-1, 1]) if entry[1] < 1 << 62 else 1
        entry[1] += change if entry[1] + change >= 0 else 1
    return site.said("%s of %s changed" % (name_of(attribute), label(found[1])))


def exaggerate_attribute(rng, copy):
    site = Site(rng, copy)
    found = site.any_node(rng, lambda one: any(a.entries(3) for a in one.values(5)))
    if not found:
        return None
    attribute = rng.choice([a for a in found[1].values(5) if a.entries(3)])
    attribute.entries(3)[0][1] = rng.choice([(1 << 63) - 1, 1 << 31, (1 << 64) - 1, 1 << 62, 255])
    return site.said("%s of %s is %d" % (name_of(attribute), label(found[1]), attribute.values(3)[0]))


def change_list_attribute(rng, copy):
    site = Site(rng, copy)
    found = site.any_node(rng, lambda one: any(len(a.entries(8)) > 1 for a in one.values(5)), preferring_attention=False)
    if not found:
        return None
    attribute = rng.choice([a for a in found[1].values(5) if len(a.entries(8)) > 1])
    one, other = rng.sample(attribute.entries(8), 2)
    one[1], other[1] = other[1], one[1]
    return site.said("%s of %s exchanged" % (name_of(attribute), label(found[1])))


def drop_attribute(rng, copy):
    site = Site(rng, copy)
    found = site.any_node(rng, lambda one: one.entries(5))
    if not found:
        return None
    entry = rng.choice(found[1].entries(5))
    found[1].fields.remove(entry)
    return site.said("%s of %s dropped" % (name_of(entry[1]), label(found[1])))


def add_attribute(rng, copy):
    site = Site(rng, copy)
    attending = site.attentions()
    if not attending:
        return None
    one = rng.choice(attending)[1]
    name, value = rng.choice([("softcap", 0.5), ("scale", 0.3), ("window", 3), ("local_window_size", 3), ("causal", 0),
                              ("is_causal", 0), ("do_rotary", 1), ("rotary_interleaved", 1), ("axis", 1)])
    if name in [name_of(a) for a in one.values(5)]:
        return None
    one.fields.append([5, new_node("", [], [], [(name, value)]).values(5)[0]])
    return site.said("%s of %s added" % (name, label(one)))


def change_operator(rng, copy):
    site = Site(rng, copy)
    found = site.any_node(rng, lambda one: operator(one) in OPPOSITES, preferring_attention=False)
    if not found:
        return None
    was = operator(found[1])
    found[1].entries(4)[0][1] = OPPOSITES[was].encode()
    return site.said("%s instead of %s -> %s" % (OPPOSITES[was], was, texts(found[1], 2)[0]))


def changed_data(rng, element, data):
    """The bytes of a tensor with one element changed; None where it has none."""
    formats = {FLOAT: "<f", FLOAT16: "<e", INT64: "<q", INT32: "<i", UINT8: "<B", INT8: "<b", BOOL: "<?"}
    if element not in formats:
        return None
    width = struct.calcsize(formats[element])
    if len(data) < width:
        return None
    at = rng.randrange(len(data) // width) * width
    number = struct.unpack_from(formats[element], data, at)[0]
    if element in (FLOAT, FLOAT16):
        number = number * -2 + 0.5 if abs(number) < 1e3 else 0.0
    elif element == BOOL:
        number = not number
    elif element in (INT64, INT32):
        number += rng.choice([-1, 1]) if abs(number) < 1 << 30 else 0
    else:
        number ^= 1
    return data[:at] + struct.pack(formats[element], number) + data[at + width:]


def change_constant(rng, copy):
    """An element of an initializer, or of a Constant's tensor."""
    site = Site(rng, copy)
    held = [value for owner in graphs(site.message) for value in owner.values(5)]
    held += [value for _, one in site.nodes for attribute in one.values(5) for value in attribute.values(5)]
    # Weights are most of the bytes, and small constants most of the structure.
    small = [value for value in held if sum(len(data) for data in value.values(9)) <= 64]
    held = small if small and rng.random() < 0.7 else held
    held = [value for value in held if value.entries(9)]
    if not held:
        return None
    one = rng.choice(held)
    data = changed_data(rng, one.values(2)[0], one.values(9)[0])
    if data is None or data == one.values(9)[0]:
        return None
    one.entries(9)[0][1] = data
    return site.said("constant %s changed" % (texts(one, 8) or [""])[0])


def change_external_weight(rng, copy):
    names = [name for name in copy.family.files if name.endswith(".data")]
    if not names:
        return None
    name = rng.choice(names)
    with open("%s/%s" % (copy.family.folder, name), "rb") as file:
        data = file.read()
    changed = changed_data(rng, FLOAT16 if copy.family.source == "half" else FLOAT, data)
    if changed is None or changed == data:
        return None
    copy.changed_bytes[name] = changed
    return "a weight in %s changed" % name


def change_declared_extent(rng, copy):
    site = Site(rng, copy)
    infos = [info for field in (11, 12) for info in main_graph(site.message).values(field)]
    extents = [(info, extent) for info in infos for declared in tensor_types(info) for extent in extents_of(declared)]
    if not extents:
        return None
    info, extent = rng.choice(extents)
    if extent.values(1):
        extent.fields = [[1, max(1, extent.values(1)[0] + rng.choice([-1, 1]))]] if rng.random() < 0.7 else \
            [[2, b"other"]]
    else:
        extent.fields = rng.choice([[[2, b"other"]], [[1, 4]]])

    return site.said("an extent of %s changed" % name_of(info))


# Caches by their role in the manifest.

def caches_where(copy, condition):
    return [cache for cache in copy.manifest["caches"] if cache.get("past") and condition(cache)]


def exchange_pasts(copy, one, other, files=None):
    """Exchanges what two caches are read from in some files, block by block; how many readers there were."""
    names = {}
    for a, b in zip([one["past"]] + one.get("blocks", []), [other["past"]] + other.get("blocks", [])):
        names[a], names[b] = b, a
    return sum(renamed_operands(copy.message(name), names) for name in files or copy.model_files())


def exchange_key_and_value(rng, copy):
    pairs = [(k, v) for k in caches_where(copy, lambda c: c["role"] == "key")
             for v in caches_where(copy, lambda c: c["role"] == "value") if k["layer"] == v["layer"]]
    return exchanged_pair(rng, copy, pairs)


def exchange_caches_of_layers(rng, copy):
    pairs = [(a, b) for a in caches_where(copy, lambda c: True) for b in caches_where(copy, lambda c: True)
             if a["layer"] < b["layer"] and a["role"] == b["role"] and a["shape"] == b["shape"]]
    return exchanged_pair(rng, copy, pairs)


def exchange_scales(rng, copy):
    scales = caches_where(copy, lambda c: c["role"].endswith("scale"))
    pairs = [(a, b) for a in scales for b in scales if a["past"] < b["past"]]
    return exchanged_pair(rng, copy, pairs)


def exchanged_pair(rng, copy, pairs):
    if not pairs:
        return None
    one, other = rng.choice(pairs)
    files = copy.model_files()
    if len(files) > 1 and rng.random() < 0.5:
        files = [rng.choice(files)]
    if not exchange_pasts(copy, one, other, files):
        return None
    return "%s and %s exchanged in %s" % (one["past"], other["past"], ", ".join(files) if len(files) == 1 else "all files")


def give_cache_twice(rng, copy):
    caches = caches_where(copy, lambda c: True)
    pairs = [(a, b) for a in caches for b in caches if a is not b and a["shape"] == b["shape"] and a["dtype"] == b["dtype"]]
    if not pairs:
        return None
    one, other = rng.choice(pairs)
    names = dict(zip([one["past"]] + one.get("blocks", []), [other["past"]] + other.get("blocks", [])))
    if not renamed_operands(copy.message(), names):
        return None
    return "%s given instead of %s" % (other["past"], one["past"])


def exchange_blocks(rng, copy):
    """Two blocks of a cache, which may be full at other lengths than the first ones."""
    caches = caches_where(copy, lambda c: len(c.get("blocks", [])) > 1)
    if not caches:
        return None
    blocks = rng.choice(caches)["blocks"]
    one, other = rng.sample(blocks, 2) if rng.random() < 0.5 else blocks[len(blocks) // 2 - 1:len(blocks) // 2 + 1]
    name = rng.choice(copy.model_files())
    if not renamed_operands(copy.message(name), {one: other, other: one}):
        return None
    return "%s: blocks %s and %s exchanged" % (name, one, other)


def give_block_twice(rng, copy):
    caches = caches_where(copy, lambda c: len(c.get("blocks", [])) > 1)
    if not caches:
        return None
    one, other = rng.sample(rng.choice(caches)["blocks"], 2)
    name = rng.choice(copy.model_files())
    if not renamed_operands(copy.message(name), {one: other}):
        return None
    return "%s: block %s given instead of %s" % (name, other, one)


def permute_block_table(rng, copy):
    tables = [length for length in copy.manifest["lengths"] if length["feed"] == "block_table"]
    pools = [cache for cache in copy.manifest["caches"] if cache.get("form") == "pool"]
    capacity = copy.manifest["capacity"]["value"]
    if not tables or not pools or not capacity:
        return None
    message = copy.message()
    order = list(range(capacity // copy.manifest["block_size"]))
    at = rng.randrange(len(order) - 1)
    order[at], order[at + 1] = order[at + 1], order[at]
    table = tables[0]["input"]
    readers = [(owner, one) for owner, one in owned_nodes(message) if table in texts(one, 1)]
    if not readers:
        return None
    owner, one = rng.choice(readers)
    add_constant(message, "mutant_order", INT64, order)
    insert_before(owner, one, [new_node("Gather", [table, "mutant_order"], ["mutant_table"], [("axis", 1)])])
    for entry in one.entries(1):
        if entry[1].decode() == table:
            entry[1] = b"mutant_table"
    return "blocks %d and %d of %s exchanged at %s" % (at, at + 1, table, label(one))


# Values that change in some steps only.

class Condition:
    """Nodes that compute where a value changes, from the inputs of the main graph."""

    def __init__(self, rng, copy, message, rank):
        self.rng = rng
        self.copy = copy
        self.message = message
        self.rank = rank
        self.inputs = inputs_of(message)
        self.nodes = []
        self.words = ""

    def has(self, name):
        return name in self.inputs

    def constant(self, name, numbers, extents=None):
        return add_constant(self.message, "mutant_" + name, INT64, numbers, extents)

    def node(self, kind, operands, result, attributes=()):
        self.nodes.append(new_node(kind, operands, ["mutant_" + result], attributes))
        return "mutant_" + result

    def extent(self, of, axis, result):
        shape = self.node("Shape", [of], result + "_shape")
        return self.node("Gather", [shape, self.constant(result + "_axis", [axis])], result, [("axis", 0)])

    def tokens(self):
        """S, as [1]."""
        return self.extent("input_ids", 1, "tokens")

    def past(self):
        """P, as [1]; None where no input tells it."""
        for length in self.copy.manifest["lengths"]:
            if length["feed"].startswith("past_length") and self.has(length["input"]):
                flat = self.node("Reshape", [length["input"], self.constant("flat", [-1])], "lengths")
                first = self.node("Gather", [flat, self.constant("first", [0])], "first_length", [("axis", 0)])
                return self.node("Cast", [first], "past", [("to", INT64)])
        if self.has("attention_mask") and len(type_of(self.inputs["attention_mask"])[1]) == 2:
            total = self.extent("attention_mask", 1, "total")
            return self.node("Sub", [total, self.tokens()], "past")
        for cache in self.copy.manifest["caches"]:
            if self.has(cache["past"]) and cache["kind"] == "self" and cache["policy"] == "fixed" and \
                    not cache["one_buffer"]:
                return self.extent(cache["past"], cache["sequence_axis"], "past")
        return None

    def chosen_length(self):
        """A length at which something begins or ends, or any."""
        manifest = self.copy.manifest
        capacity = manifest["capacity"]["value"] or 40
        size = manifest.get("block_size") or 16
        special = [size, 2 * size, size - 1, capacity - 1, capacity - 2, capacity // 2]
        for cache in manifest["caches"]:
            rows = cache["shape"][cache["sequence_axis"]]
            special += [each for each in (cache["window"], rows) if isinstance(each, int) and each > 0]
        special = [each for each in special if 1 <= each < capacity]
        if special and self.rng.random() < 0.5:
            return self.rng.choice(special)
        return self.rng.randrange(1, capacity)

    def at_length(self):
        past = self.past()
        if not past:
            return None
        length = self.chosen_length()
        self.words = "where %d tokens are cached" % length
        return self.node("Equal", [past, self.constant("length", [length])], "where")

    def from_length(self):
        past = self.past()
        if not past:
            return None
        length = self.chosen_length()
        self.words = "where more than %d tokens are cached" % length
        return self.node("Greater", [past, self.constant("length", [length])], "where")

    def several_tokens(self):
        if not self.has("input_ids"):
            return None
        self.words = "in steps of several tokens"
        return self.node("Greater", [self.tokens(), self.constant("one", [1])], "where")

    def one_step_length(self):
        if not self.has("input_ids"):
            return None
        count = self.rng.choice([2, 3, 4, 6, 8, 9, 12, 17])
        self.words = "in steps of %d tokens" % count
        return self.node("Equal", [self.tokens(), self.constant("count", [count])], "where")

    def chunk_after_past(self):
        past = self.past()
        if not past or not self.has("input_ids"):
            return None
        several = self.several_tokens()
        later = self.node("Greater", [past, self.constant("none", [0])], "later")
        self.words = "in chunks after others"
        return self.node("And", [several, later], "both")

    def batch_row(self):
        if not self.has("input_ids"):
            return None
        row = self.rng.choice([1, 1, 2])
        self.words = "in batch row %d" % row
        rows = self.node("Range", [self.constant("zero", [0], []), self.scalar(self.extent("input_ids", 0, "batch")),
                                   self.constant("by", [1], [])], "rows")
        where = self.node("Equal", [rows, self.constant("row", [row])], "row_where")
        return self.node("Reshape", [where, self.constant("row_shape", [-1] + [1] * (self.rank - 1))], "where")

    def larger_batch(self):
        if not self.has("input_ids"):
            return None
        self.words = "in batches of several rows"
        return self.node("Greater", [self.extent("input_ids", 0, "batch"), self.constant("one_row", [1])], "where")

    def padded_rows(self):
        if not self.has("attention_mask") or not self.has("input_ids") or self.rank != 3 or \
                type_of(self.inputs["attention_mask"])[0] not in (INT64, INT32):
            return None
        self.words = "for padding"
        start = self.node("Neg", [self.tokens()], "start")
        new = self.node("Slice", ["attention_mask", start, self.constant("end", [(1 << 63) - 1]),
                                  self.constant("columns", [1])], "new_mask")
        wide = self.node("Cast", [new], "new_wide", [("to", INT64)])
        hidden = self.node("Equal", [wide, self.constant("hidden", [0])], "hidden_rows")
        return self.node("Reshape", [hidden, self.constant("hidden_shape", [0, 0, 1])], "where")

    def after_padding(self):
        """The first key of the batch row is hidden, and the token is not."""
        if not self.has("attention_mask") or self.rank != 3 or \
                type_of(self.inputs["attention_mask"])[0] not in (INT64, INT32):
            return None
        self.words = "in rows that are padded on the left"
        first = self.node("Slice", ["attention_mask", self.constant("start", [0]), self.constant("end", [1]),
                                    self.constant("columns", [1])], "first_mask")
        wide = self.node("Cast", [first], "first_wide", [("to", INT64)])
        hidden = self.node("Equal", [wide, self.constant("hidden", [0])], "hidden_rows")
        return self.node("Reshape", [hidden, self.constant("hidden_shape", [-1, 1, 1])], "where")

    def one_token(self):
        if not self.has("input_ids") or self.rank != 3 or type_of(self.inputs["input_ids"])[0] != INT64:
            return None
        token = self.rng.randrange(1, 32)
        self.words = "for token %d" % token
        same = self.node("Equal", ["input_ids", self.constant("token", [token])], "same")
        return self.node("Reshape", [same, self.constant("same_shape", [0, 0, 1])], "where")

    def always(self):
        self.words = "always"
        return ""

    def scalar(self, value):
        return self.node("Reshape", [value, self.constant("scalar", [], [0])], "batch_scalar")


def add_where(rng, copy, choose, value, owner, before, element, rank, scales=False):
    """Nodes that give `value` plus a number, or twice the value, where a condition holds; its name and the words, or None."""
    name = next(name for name in copy.model_files() if copy.message(name) is choose[0])
    message = copy.message(name)
    condition = Condition(rng, copy, message, rank)
    where = getattr(condition, choose[1])()
    if where is None:
        return None
    add_constant(message, "mutant_delta", element, [1.0])
    delta = "mutant_delta"
    if where:
        cast = condition.node("Cast", [where], "cast", [("to", element)])
        delta = condition.node("Mul", [cast, delta], "change")
    if scales:
        delta = condition.node("Add", [delta, "mutant_delta"], "factor")
    condition.nodes.append(new_node("Mul" if scales else "Add", [value, delta], ["mutant_value"]))
    insert_before(owner, before, condition.nodes)
    return "mutant_value", condition.words


def logits_of(message):
    for name, info in outputs_of(message).items():
        if type_of(info)[0] in (FLOAT, FLOAT16) and len(type_of(info)[1]) == 3:
            return name, info
    return None


def shift_output(rng, copy, name, output, element, rank, kind):
    """An output of one file changes where a condition holds; what was done."""
    message = copy.message(name)
    owner = main_graph(message)
    made = add_where(rng, copy, (message, kind), "mutant_base", owner, None, element, rank)
    if not made:
        return None
    for _, one in owned_nodes(message):
        for field in (1, 2):
            for entry in one.entries(field):
                if entry[1].decode() == output:
                    entry[1] = b"mutant_base"
                elif entry[1] == b"mutant_value":
                    entry[1] = output.encode()
    return "%s: %s changes %s" % (name, output, made[1])


def shift_logits(rng, copy, kind, files=None):
    """The logits of one file change where a condition holds."""
    names = [name for name in files or copy.model_files() if logits_of(copy.message(name))]
    if not names:
        return None
    name = rng.choice(names)
    output, info = logits_of(copy.message(name))
    return shift_output(rng, copy, name, output, type_of(info)[0], 3, kind)


def shift_cache(rng, copy):
    """What comes out as a cache changes, after attention has read it."""
    name = rng.choice(copy.model_files())
    outputs = outputs_of(copy.message(name))
    presents = sorted(cache["present"] for cache in copy.manifest["caches"] if cache["present"] in outputs)
    if not presents:
        return None
    output = rng.choice(presents)
    element, extents = type_of(outputs[output])
    if element not in (FLOAT, FLOAT16):
        return None
    return shift_output(rng, copy, name, output, element, len(extents), rng.choice(["always", "at_length", "from_length"]))


def element_of(copy, message, name):
    """The element type of a value that attention reads: what it is cast to, or that of the model's logits."""
    for _, one in owned_nodes(message):
        if operator(one) == "Cast" and texts(one, 2) == [name]:
            return next(each.values(3)[0] for each in one.values(5) if name_of(each) == "to")
    logits = logits_of(copy.message())
    return type_of(logits[1])[0] if logits else FLOAT


def shift_query(rng, copy, kind):
    """The first operand of one attention changes where a condition holds."""
    message = copy.message(rng.choice(copy.model_files()))
    attending = [(owner, one) for owner, one in owned_nodes(message) if is_attention(one) and texts(one, 1)[:1] and
                 operator(one) not in ("TensorScatter", "QuantizeRows")]
    if not attending:
        return None
    owner, one = rng.choice(attending)
    if operator(one) == "PagedAttention" and kind == "batch_row":
        return None  # the rows of a batch are one after the other
    element = element_of(copy, message, texts(one, 1)[0])
    # Heads are an axis of the query, or an attribute has their number.
    rank = 3 if {"num_heads", "q_num_heads"} & {name_of(each) for each in one.values(5)} else 4
    # A number that is added to all scores of a row does not change their softmax.
    made = add_where(rng, copy, (message, kind), texts(one, 1)[0], owner, one, element, rank, operator(one) == "Softmax")
    if not made:
        return None
    one.entries(1)[0][1] = b"mutant_value"
    return "query of %s changes %s" % (label(one), made[1])


def shift_length(rng, copy):
    """A length that an operator is given is one less at one length."""
    message = copy.message(rng.choice(copy.model_files()))
    lengths = {each["input"]: each for each in copy.manifest["lengths"] if each["feed"] != "block_table" and
               each["dtype"] in ("int64", "int32")}
    readers = [(owner, one, entry) for owner, one in owned_nodes(message) for entry in one.entries(1)
               if entry[1].decode() in lengths]
    if not readers:
        return None
    attending = [reader for reader in readers if is_attention(reader[1])]
    owner, one, entry = rng.choice(attending if attending and rng.random() < 0.7 else readers)
    length = lengths[entry[1].decode()]
    element = INT64 if length["dtype"] == "int64" else INT32
    at = Condition(rng, copy, message, 1).chosen_length()
    change = rng.choice([-1, 1])
    add_constant(message, "mutant_at", element, [at], [])
    add_constant(message, "mutant_less", element, [change], [])
    insert_before(owner, one, [
        new_node("Equal", [length["input"], "mutant_at"], ["mutant_where"]),
        new_node("Cast", ["mutant_where"], ["mutant_cast"], [("to", element)]),
        new_node("Mul", ["mutant_cast", "mutant_less"], ["mutant_change"]),
        new_node("Add", [length["input"], "mutant_change"], ["mutant_length"])])
    entry[1] = b"mutant_length"
    return "%s of %s is off by %d at %d" % (length["input"], label(one), change, at)


def shift_every_length(rng, copy):
    """A length that an operator is given is always another one."""
    message = copy.message(rng.choice(copy.model_files()))
    lengths = {each["input"]: each["dtype"] for each in copy.manifest["lengths"] if each["dtype"] in ("int64", "int32")}
    readers = [(owner, one, entry) for owner, one in owned_nodes(message) for entry in one.entries(1)
               if entry[1].decode() in lengths]
    if not readers:
        return None
    owner, one, entry = rng.choice(readers)
    change = rng.choice([-1, 1, 2])
    add_constant(message, "mutant_change", INT64 if lengths[entry[1].decode()] == "int64" else INT32, [change], [])
    insert_before(owner, one, [new_node("Add", [entry[1].decode(), "mutant_change"], ["mutant_length"])])
    words = "%s of %s is off by %d" % (entry[1].decode(), label(one), change)
    entry[1] = b"mutant_length"
    return words


# Function bodies.

def change_body(rng, copy):
    message = copy.message(rng.choice(copy.model_files()))
    functions = [one for one in message.values(25) if one.values(7)]
    if not functions:
        return None
    function = rng.choice(functions)
    kind = rng.randrange(4)
    words = None
    if kind == 0:
        result = rng.choice(texts(function, 5))
        for one in function.values(7):
            for field in (1, 2):
                for entry in one.entries(field):
                    if entry[1].decode() == result:
                        entry[1] = b"mutant_result"
        function.fields.append([7, new_node("Neg", ["mutant_result"], [result])])
        words = "%s negated" % result
    elif kind == 1:
        nodes = [one for one in function.values(7) if operator(one) in OPPOSITES]
        if nodes:
            one = rng.choice(nodes)
            words = "%s -> %s" % (operator(one), OPPOSITES[operator(one)])
            one.entries(4)[0][1] = OPPOSITES[operator(one)].encode()
    elif kind == 2:
        nodes = [one for one in function.values(7) if len(one.entries(1)) > 1]
        if nodes:
            one, (first, second) = (lambda n: (n, rng.sample(n.entries(1), 2)))(rng.choice(nodes))
            first[1], second[1] = second[1], first[1]
            words = "operands of %s exchanged" % label(one)
    else:
        attributes = [a for one in function.values(7) for a in one.values(5) if a.entries(8) or a.entries(2)]
        if attributes:
            attribute = rng.choice(attributes)
            for entry in attribute.entries(8)[:1]:
                entry[1] = entry[1] + 1 if isinstance(entry[1], int) else varint(3)
            for entry in attribute.entries(2):
                entry[1] = (5, struct.pack("<f", 0.75))
            words = "%s changed" % name_of(attribute)
    if not words:
        return None
    copy.has_new_body = True
    return "body of %s: %s" % (texts(function, 1)[0], words)


def drop_body(rng, copy):
    message = copy.message(rng.choice(copy.model_files()))
    entries = message.entries(25)
    if not entries:
        return None
    entry = rng.choice(entries)
    message.fields.remove(entry)
    copy.has_new_body = True
    return "body of %s dropped" % texts(entry[1], 1)[0]


def inline_bodies(copy):
    """Puts the operators that have bodies into another domain: what an engine without them computes."""
    for name in copy.model_files():
        message = copy.message(name)
        written = read_model(os.path.join(copy.family.folder, name))
        defined = {texts(one, 1)[0] for one in written.values(25)}
        for owner in graphs(message) + message.values(25):
            for one in owner.values(1) + owner.values(7):
                if isinstance(one, Message) and one.values(7) == [b"ai.kvopt"] and operator(one) in defined:
                    one.entries(7)[0][1] = b"mutant"
        for one in message.values(25):
            for entry in one.entries(10):
                entry[1] = b"mutant"
            one.fields.append([9, new_message([[1, b"mutant"], [2, 1]], {})])
        message.fields.append([8, new_message([[1, b"mutant"], [2, 1]], {})])


# The manifest.

def paths_of(value, path=()):
    """The paths to all values below one."""
    found = []
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, below in items:
        found.append(path + (key,))
        found += paths_of(below, path + (key,))
    return found


def general(path):
    return ".".join("[]" if isinstance(key, int) else key for key in path).replace(".[]", "[]")


def at_path(value, path):
    for key in path:
        value = value[key]
    return value


def chosen_path(rng, manifest, condition=lambda value: True):
    """A path by its general form: a field of caches is as likely as one that there is once."""
    by_form = {}
    for path in paths_of(manifest):
        if condition(at_path(manifest, path)):
            by_form.setdefault(general(path), []).append(path)
    if not by_form:
        return None
    return rng.choice(by_form[rng.choice(sorted(by_form))])


def fields_of(families):
    """The general path of every field that a family of some preset has, with what is done to it."""
    rows = []
    for preset in sorted(PRESETS):
        forms = {}
        for family in families.of_preset(preset):
            for path in paths_of(family.manifest):
                forms.setdefault(general(path), []).append(is_leaf(at_path(family.manifest, path)))
        for form in sorted(forms):
            rows += [(preset, form, kind) for kind in ("manifest changed", "manifest entry dropped")
                     if kind != "manifest changed" or any(forms[form])]
    return rows


def mutate_field(rng, families, row):
    """A changed copy for a row of `fields_of`, and what was done; None where no value is another one."""
    preset, form, kind = row
    is_change = kind == "manifest changed"
    choices = [(family, path) for family in families.of_preset(preset) for path in paths_of(family.manifest)
               if general(path) == form and (not is_change or is_leaf(at_path(family.manifest, path)))]
    for family, path in rng.sample(choices, min(len(choices), 8)):
        copy = Copy(family)
        done = change_field(rng, copy, path) if is_change else drop_field(copy, path)
        if done:
            return copy, done
    return None


WORDS = {
    "feed": ["past_length", "total_length", "past_length_per_batch", "total_length_per_batch", "total_length_minus_one",
             "has_past", "no_past", "token_ids", "position_ids", "visible_keys", "hidden_keys", "additive_mask",
             "segment_ids", "batch_rows", "any", "block_table"],
    "policy": ["fixed", "ring", "static", "block", "state"],
    "role": ["key", "value", "latent", "key_scale", "value_scale", "state"],
    "kind": ["self", "cross"],
    "dtype": ["float32", "float16", "int8", "uint8", "int64", "int32", "bool"],
    "pairs": ["halves", "neighbors", "interleaved"],
    "contract": ["growing", "shared-buffer", "blocks", "stateful"],
}


def is_leaf(value):
    return not isinstance(value, (dict, list))


def change_field(rng, copy, path):
    """Another value of the same type at the path, which leads to a leaf."""
    parent, value = at_path(copy.manifest, path[:-1]), at_path(copy.manifest, path)
    alike = sorted({at_path(copy.manifest, other) for other in paths_of(copy.manifest)
                    if general(other) == general(path) and isinstance(at_path(copy.manifest, other), type(value))} - {value})
    if isinstance(value, bool):
        new = not value
    elif isinstance(value, int):
        new = max(0, rng.choice([value - 1, value + 1, 2 * value, value // 2, 1] + alike[:2]))
    elif isinstance(value, float):
        new = rng.choice([value * 2, 9.0])
    elif value is None:
        new = rng.choice([8, 40])
    else:
        new = rng.choice(WORDS.get(path[-1], []) + alike + ["other"])
    if new == value:
        return None
    parent[path[-1]] = new
    return "manifest: %s from %s to %s" % (general(path), json.dumps(value), json.dumps(new))


def drop_field(copy, path):
    del at_path(copy.manifest, path[:-1])[path[-1]]
    return "manifest: %s dropped" % general(path)


def change_manifest(rng, copy):
    return change_field(rng, copy, chosen_path(rng, copy.manifest, is_leaf))


def drop_manifest_entry(rng, copy):
    return drop_field(copy, chosen_path(rng, copy.manifest))


def repeat_manifest_entry(rng, copy):
    path = chosen_path(rng, copy.manifest, lambda value: isinstance(value, list) and value)
    if not path:
        return None
    entries = at_path(copy.manifest, path)
    entries.append(json.loads(json.dumps(rng.choice(entries))))
    return "manifest: %s repeated" % general(path)


def exchange_manifest_entries(rng, copy):
    """The same field of two entries of a list, or two entries of one."""
    path = chosen_path(rng, copy.manifest, lambda value: isinstance(value, list) and len(value) > 1)
    if not path:
        return None
    entries = at_path(copy.manifest, path)
    one, other = rng.sample(range(len(entries)), 2)
    if isinstance(entries[one], dict) and rng.random() < 0.7:
        keys = sorted(key for key in set(entries[one]) & set(entries[other]) if entries[one][key] != entries[other][key])
        if not keys:
            return None
        key = rng.choice(keys)
        entries[one][key], entries[other][key] = entries[other][key], entries[one][key]
        return "manifest: %s[].%s exchanged" % (general(path), key)
    if entries[one] == entries[other]:
        return None
    entries[one], entries[other] = entries[other], entries[one]
    return "manifest: entries of %s exchanged" % general(path)


def add_manifest_field(rng, copy):
    manifest = copy.manifest
    cache = rng.choice(manifest["caches"])
    rank = len(cache["shape"])
    order = list(range(rank))
    rng.shuffle(order)
    names = sorted(inputs_of(copy.message()))
    masks = [name for name in names if "mask" in name] or names[:1]
    choices = [
        (manifest, "step_limit", rng.choice([1, 2, 4])), (manifest, "unpadded", masks[:1]), (manifest, "chunk_batch", 1),
        (manifest, "hidden_rows", "undefined"), (manifest, "reorder", rng.choice(names)), (manifest, "block_size", 4),
        (manifest, "first_step", "m.onnx"), (manifest, "rotations", []),
        (cache, "present_rows", "new"), (cache, "rows", "attended"), (cache, "readers", [0, 1]), (cache, "rotation", 0),
        (cache, "exported_dtype", "float16"), (cache, "code_columns", 8), (cache, "permutation", order),
        (cache, "replaces", [{"past": "other", "present": "other"}]), (cache, "form", "pool"),
        (cache, "part", {"past": cache["past"], "present": cache["present"], "first": [0] * rank, "dropped": []}),
        (cache, "blocks", [cache["past"]]),
        (manifest, "inputs", [{"input": rng.choice(names), "dtype": "int64", "shape": ["batch", "new"],
                               "feed": rng.choice(WORDS["feed"])}]),
        (manifest, "variants", [{"file": "m.onnx", "past_blocks": 1, "past_rows": 8}]),
    ]
    place, key, value = rng.choice([choice for choice in choices if choice[1] not in choice[0]])
    place[key] = value
    return "manifest: %s%s added" % ("" if place is manifest else "caches[].", key)


# A change of the graph, and a manifest that could keep a verification from making the steps that show it.

def hide_behind_step_limit(rng, copy):
    copy.manifest["step_limit"] = 1
    words = shift_logits(rng, copy, rng.choice(["several_tokens", "chunk_after_past"]))
    return words and words + ", step_limit 1"


def hide_behind_unpadded(rng, copy):
    if "attention_mask" not in inputs_of(copy.message()):
        return None
    copy.manifest["unpadded"] = ["attention_mask"]
    words = shift_logits(rng, copy, rng.choice(["padded_rows", "after_padding"]))
    return words and words + ", unpadded"


def hide_behind_chunk_batch(rng, copy):
    copy.manifest["chunk_batch"] = 1
    words = shift_logits(rng, copy, "chunk_after_past")
    return words and words + ", chunk_batch 1"


def hide_behind_capacity(rng, copy):
    capacity = copy.manifest["capacity"]
    was = capacity["value"]
    capacity["value"] = rng.choice([4, 8, 12]) if was is None else max(4, was - rng.choice([1, 8]))
    words = shift_logits(rng, copy, "from_length")
    return words and words + ", capacity %d" % capacity["value"]


def hide_behind_hidden_rows(rng, copy):
    copy.manifest["hidden_rows"] = "undefined"
    words = shift_logits(rng, copy, rng.choice(["after_padding", "padded_rows"]))
    return words and words + ", hidden_rows undefined"


def on_logits(kind):
    return lambda rng, copy: shift_logits(rng, copy, kind)


def on_query(kind):
    return lambda rng, copy: shift_query(rng, copy, kind)


def whole_of_tiles(rng, copy):
    if not copy.manifest.get("tiles"):
        return None
    return shift_logits(rng, copy, rng.choice(["always", "at_length"]), ["m.onnx"])


KINDS = {
    "operand dropped": drop_operand,
    "operand duplicated": duplicate_operand,
    "operands exchanged": exchange_operands,
    "operands of layers exchanged": exchange_operands_of_layers,
    "results exchanged": exchange_results,
    "results of layers exchanged": exchange_results_of_layers,
    "outputs exchanged": exchange_outputs,
    "output dropped": drop_output,
    "outputs dropped": drop_outputs,
    "node bypassed": bypass_node,
    "stale cache read": read_stale_cache,
    "attribute changed": change_attribute,
    "attribute exaggerated": exaggerate_attribute,
    "list attribute changed": change_list_attribute,
    "attribute dropped": drop_attribute,
    "attribute added": add_attribute,
    "operator changed": change_operator,
    "constant changed": change_constant,
    "external weight changed": change_external_weight,
    "declared extent changed": change_declared_extent,
    "key and value exchanged": exchange_key_and_value,
    "caches of layers exchanged": exchange_caches_of_layers,
    "scales exchanged": exchange_scales,
    "cache given twice": give_cache_twice,
    "blocks exchanged": exchange_blocks,
    "block given twice": give_block_twice,
    "block table permuted": permute_block_table,
    "logits at one length": on_logits("at_length"),
    "logits from a length": on_logits("from_length"),
    "logits of several tokens": on_logits("several_tokens"),
    "logits of one step length": on_logits("one_step_length"),
    "logits of later chunks": on_logits("chunk_after_past"),
    "logits of one batch row": on_logits("batch_row"),
    "logits of batches": on_logits("larger_batch"),
    "logits of padding": on_logits("padded_rows"),
    "logits after padding": on_logits("after_padding"),
    "logits of one token": on_logits("one_token"),
    "logits always": on_logits("always"),
    "query at one length": on_query("at_length"),
    "query from a length": on_query("from_length"),
    "query of several tokens": on_query("several_tokens"),
    "query of later chunks": on_query("chunk_after_past"),
    "query of one batch row": on_query("batch_row"),
    "query always": on_query("always"),
    "length off at one length": shift_length,
    "length always off": shift_every_length,
    "cache output changed": shift_cache,
    "whole of tiles": whole_of_tiles,
    "function body changed": change_body,
    "function body dropped": drop_body,
    "manifest changed": change_manifest,
    "manifest entry dropped": drop_manifest_entry,
    "manifest entry repeated": repeat_manifest_entry,
    "manifest entries exchanged": exchange_manifest_entries,
    "manifest field added": add_manifest_field,
    "hidden behind step_limit": hide_behind_step_limit,
    "hidden behind unpadded": hide_behind_unpadded,
    "hidden behind chunk_batch": hide_behind_chunk_batch,
    "hidden behind capacity": hide_behind_capacity,
    "hidden behind hidden_rows": hide_behind_hidden_rows,
}
