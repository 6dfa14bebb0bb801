#pragma once

#include <ATen/core/Tensor.h>

#include <filesystem>

#include "retinue/datasets/data_error.h"

namespace retinue {

/// Maps a file of NumPy's format npy, as numpy.load(file, mmap_mode="c") does: a tensor of the file's sizes, type and
/// order (a Fortran order becomes the strides).
///
/// Nothing is read before it is used, and all processes of a host share the pages. Writes go to this process's copy,
/// not to the file. The file must not become shorter while the tensor lives. Errors: DataError, also for types that
/// LibTorch doesn't have (objects, strings, records, big-endian numbers).
at::Tensor read_npy(const std::filesystem::path& file);

}  // namespace retinue
