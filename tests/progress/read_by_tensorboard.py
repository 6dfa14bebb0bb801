"""Prints what TensorBoard's own reader finds in a folder, as JSON; or, with --cuts FILE, checks that it reads all whole
events of the file, wherever that is cut off."""

import json
import os
import sys
import tempfile

import numpy
from tensorboard.backend.event_processing import event_accumulator, event_file_loader


def shown(folder):
    events = event_accumulator.EventAccumulator(
        folder, size_guidance={event_accumulator.HISTOGRAMS: 0, event_accumulator.TENSORS: 0,
                               event_accumulator.SCALARS: 0})
    events.Reload()
    tags = events.Tags()
    found = {"scalars": {tag: [[event.step, repr(event.value)] for event in events.Scalars(tag)]
                         for tag in tags["scalars"]}}
    found["histograms"] = {}
    for tag in tags["histograms"]:
        value = events.Histograms(tag)[0].histogram_value
        found["histograms"][tag] = {"count": value.num, "sum": value.sum, "limits": list(value.bucket_limit),
                                    "counts": list(value.bucket)}
    found["texts"] = {tag: events.Tensors(tag)[0].tensor_proto.string_val[0].decode() for tag in tags["tensors"]
                      if events.SummaryMetadata(tag).plugin_data.plugin_name == "text"}
    return found


def expected_histogram(values):
    """As torch/utils/tensorboard/summary.py makes it."""
    bins, end = [], 1e-12
    while end < 1e20:
        bins.append(end)
        end *= 1.1
    counts, limits = numpy.histogram(values, bins=[-each for each in bins[::-1]] + [0] + bins)
    used = numpy.cumsum(numpy.greater(counts, 0))
    first, last = numpy.searchsorted(used, [0, used[-1] - 1], side="right")
    last += 1
    counts = counts[first - 1:last] if first > 0 else numpy.concatenate([[0], counts[:last]])
    return {"count": float(len(values)), "sum": float(numpy.sum(values)),
            "limits": limits[first:last + 1].tolist(), "counts": counts.astype(float).tolist()}


def check_cuts(path):
    with open(path, "rb") as file:
        data = file.read()
    ends, at = [], 0
    while at < len(data):
        at += 16 + int.from_bytes(data[at:at + 8], "little")
        ends.append(at)
    assert len(ends) > 3 and ends[-1] == len(data)
    with tempfile.TemporaryDirectory() as folder:
        cut = os.path.join(folder, "events.out.tfevents.cut")
        for size in range(1, len(data) + 1):
            with open(cut, "wb") as file:
                file.write(data[:size])
            read = len(list(event_file_loader.EventFileLoader(cut).Load()))
            assert read == sum(end <= size for end in ends), (size, read)
    print(json.dumps({"cuts": len(data)}))


if sys.argv[1] == "--cuts":
    check_cuts(sys.argv[2])
elif sys.argv[1] == "--histogram":
    print(json.dumps(expected_histogram([float(each) for each in sys.argv[2:]])))
else:
    print(json.dumps(shown(sys.argv[1])))
