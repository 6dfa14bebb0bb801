#pragma once

// All of retinue::datasets, and of retinue::torch.
#include "retinue/datasets/csv.h"
#include "retinue/datasets/data_error.h"
#include "retinue/datasets/idx.h"
#include "retinue/datasets/image_folder.h"
#include "retinue/datasets/npy.h"
#include "retinue/torch.h"
