"""Reads TFRecord files of TensorFlow events with nothing but Python, and prints an event a line, as JSON.

Its last line is {"left": N}: so many bytes at the end are part of a record that isn't whole.
"""

import json
import struct
import sys


def crc32c(data):
    rest = 0xFFFFFFFF
    for byte in data:
        rest ^= byte
        for _ in range(8):
            rest = rest >> 1 ^ (0x82F63B78 if rest & 1 else 0)
    return rest ^ 0xFFFFFFFF


def unmasked(masked):
    rotated = (masked - 0xA282EAD8) & 0xFFFFFFFF
    return (rotated >> 17 | rotated << 15) & 0xFFFFFFFF


def records(data):
    """Yields whole records, and how many bytes are left behind the last one."""
    at = 0
    while len(data) - at >= 12:
        head = data[at:at + 8]
        length, = struct.unpack("<Q", head)
        assert unmasked(struct.unpack_from("<I", data, at + 8)[0]) == crc32c(head), "checksum of a length"
        if len(data) - at < 16 + length:
            break
        record = data[at + 12:at + 12 + length]
        assert unmasked(struct.unpack_from("<I", data, at + 12 + length)[0]) == crc32c(record), "checksum of a record"
        at += 16 + length
        yield record, len(data) - at


def varint(data, at):
    value = shift = 0
    while True:
        byte = data[at]
        value |= (byte & 0x7F) << shift
        shift, at = shift + 7, at + 1
        if byte < 0x80:
            return value, at


def fields(data):
    """The fields of a message: number to values, in their wire format."""
    found, at = {}, 0
    while at < len(data):
        key, at = varint(data, at)
        kind = key & 7
        if kind == 0:
            value, at = varint(data, at)
        else:
            length = {1: 8, 5: 4}.get(kind)
            if kind == 2:
                length, at = varint(data, at)
            value, at = data[at:at + length], at + length
            assert len(value) == length
        found.setdefault(key >> 3, []).append(value)
    return found


def double(data):
    return struct.unpack("<d", data)[0]


def doubles(data):
    return list(struct.unpack(f"<{len(data) // 8}d", data))


def shown(event):
    found = fields(event)
    line = {"step": found.get(2, [0])[0]}
    assert double(found[1][0]) > 1.7e9, "wall time"
    if 3 in found:
        line["version"] = found[3][0].decode()
    if 7 in found:
        line["session"] = fields(found[7][0])[1][0]
    if 5 in found:
        value = fields(fields(found[5][0])[1][0])
        line["tag"] = value[1][0].decode()
        if 2 in value:
            line["value"] = repr(struct.unpack("<f", value[2][0])[0])
        if 8 in value:
            tensor = fields(value[8][0])
            line["text"] = [tensor[1][0], tensor[8][0].decode(),
                            fields(fields(value[9][0])[1][0])[1][0].decode()]
        if 5 in value:
            histogram = fields(value[5][0])
            line["histogram"] = [double(histogram[i][0]) for i in range(1, 6)]
            line["limits"], line["counts"] = doubles(histogram[6][0]), doubles(histogram[7][0])
    return line


if __name__ == "__main__":
    for path in sys.argv[1:]:
        with open(path, "rb") as file:
            data = file.read()
        left = len(data)
        for record, left in records(data):
            print(json.dumps(shown(record)))
        print(json.dumps({"left": left}))
