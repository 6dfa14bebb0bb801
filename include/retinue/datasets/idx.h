#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <filesystem>
#include <vector>

#include "retinue/datasets/data_error.h"

namespace retinue {

/// Reads an IDX file, the format of MNIST and Fashion-MNIST, gzipped or not: a tensor of uint8, int8, int16, int32,
/// float or double, with the file's sizes.
///
/// `sizes`, if not empty, is what the file must have; -1 is any number. Memory is only used for data that the file has,
/// whatever its header says. Errors: DataError. Cost: a gzipped file of 50 MB takes 0.3 s; of several ranks of a host,
/// one can read it for all (load_once_per_host()).
at::Tensor read_idx(const std::filesystem::path& file, const std::vector<std::int64_t>& sizes = {});

struct LabelledImages {
  at::Tensor images;  ///< [items, 1, height, width], uint8.
  at::Tensor labels;  ///< [items], int64.

  template <class Archive>
  void serialize(Archive& archive) {
    archive(images, labels);
  }
};

/// Reads a file of images and the file of their labels, as MNIST has them. Errors: DataError, also for different
/// numbers of items, and for a label that isn't below `classes`.
LabelledImages read_labelled_images(const std::filesystem::path& images, const std::filesystem::path& labels,
                                    std::int64_t classes = 256);

/// Reads the folder of a data set with MNIST's file names, gzipped or not: train-images-idx3-ubyte.gz and so on, or
/// those that begin with t10k if not `train`. Errors: DataError.
LabelledImages read_mnist(const std::filesystem::path& folder, bool train);

}  // namespace retinue
