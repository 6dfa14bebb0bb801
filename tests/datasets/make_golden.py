#!/usr/bin/env python3
"""Writes golden/: files as NumPy and Pillow write them, and what Pillow reads from them. Needs numpy and pillow.

For x.jpg and x.png, x.npy has the pixels of convert("RGB"), and x.grey.npy those of convert("L"), both [channels, height,
width]. Run it in this folder.
"""
import pathlib
import struct
import zlib

import numpy as np
from PIL import Image

GOLDEN = pathlib.Path("golden")
rng = np.random.default_rng(3)


def smooth(height, width):
    """Pixels as pictures have them: neighbours are alike."""
    small = Image.fromarray(rng.integers(0, 256, (4, 4, 3), dtype=np.uint8))
    return small.resize((width, height), Image.BICUBIC)


def keep_pixels(name):
    image = Image.open(GOLDEN / name)
    stem = name.replace(".", "_")
    np.save(GOLDEN / f"{stem}.npy", np.asarray(image.convert("RGB")).transpose(2, 0, 1))
    np.save(GOLDEN / f"{stem}_grey.npy", np.asarray(image.convert("L"))[None])


def write_images():
    picture = smooth(13, 17)
    grey = picture.convert("L")
    alpha = picture.copy()
    alpha.putalpha(Image.fromarray(rng.integers(0, 256, (13, 17), dtype=np.uint8)))
    for name, image, options in (
        ("rgb.jpg", picture, {"quality": 90}),
        ("full.jpg", picture, {"quality": 90, "subsampling": 0}),
        ("progressive.jpg", picture, {"quality": 80, "progressive": True}),
        ("grey.jpg", grey, {"quality": 90}),
        ("rgb.png", picture, {}),
        ("alpha.png", alpha, {}),
        ("grey.png", grey, {}),
        ("palette.png", picture.quantize(16), {}),
        ("bits.png", grey.convert("1"), {}),
    ):
        image.save(GOLDEN / name, **options)
        keep_pixels(name)
    picture.convert("CMYK").save(GOLDEN / "cmyk.jpg")
    np.save(GOLDEN / "rgb_png_resized.npy",
            np.asarray(picture.resize((11, 8), Image.BILINEAR)).transpose(2, 0, 1))
    np.save(GOLDEN / "rgb_png_enlarged.npy",
            np.asarray(picture.resize((40, 31), Image.BILINEAR)).transpose(2, 0, 1))


def write_deep_image():
    """16 bits for each channel, which Pillow reads but doesn't write."""
    pixels = np.random.default_rng(16).integers(0, 65536, (5, 7, 3), dtype=np.uint16).astype(">u2")

    def chunk(name, data):
        return struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))

    rows = b"".join(b"\0" + row.tobytes() for row in pixels)
    (GOLDEN / "deep.png").write_bytes(b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", struct.pack(">IIBBBBB", 7, 5, 16, 2, 0, 0, 0)) +
                                      chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b""))
    keep_pixels("deep.png")


def write_arrays():
    counted = np.arange(24).reshape(2, 3, 4)
    np.save(GOLDEN / "float32.npy", counted.astype(np.float32))
    np.save(GOLDEN / "fortran.npy", np.asfortranarray(counted.astype(np.float64)))
    for name in ("int8", "int16", "int32", "int64", "uint8", "uint16", "float16", "complex64"):
        np.save(GOLDEN / f"{name}.npy", counted.astype(name))
    np.save(GOLDEN / "bool.npy", counted % 3 == 0)
    np.save(GOLDEN / "scalar.npy", np.float32(2.5))
    np.save(GOLDEN / "empty.npy", np.zeros((0, 3), np.float32))
    np.save(GOLDEN / "big_endian.npy", counted.astype(">f4"))
    np.save(GOLDEN / "text.npy", np.array(["a", "bc"]))
    with open(GOLDEN / "version2.npy", "wb") as file:
        np.lib.format.write_array(file, counted.astype(np.float32), version=(2, 0))
    with open(GOLDEN / "version3.npy", "wb") as file:
        np.lib.format.write_array(file, counted.astype(np.float32), version=(3, 0))


write_images()
write_deep_image()
write_arrays()
