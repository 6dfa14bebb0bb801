#pragma once

// All of retinue::torch, and of retinue::core.
#include "retinue/retinue.h"
#include "retinue/torch/c10d_store.h"
#include "retinue/torch/distributed_data_parallel.h"
#include "retinue/torch/distributed_sampler.h"
#include "retinue/torch/divergence.h"
#include "retinue/torch/functional.h"
#include "retinue/torch/groups.h"
#include "retinue/torch/messages.h"
#include "retinue/torch/objects.h"
#include "retinue/torch/process_group.h"
#include "retinue/torch/run.h"
#include "retinue/torch/shared_tensor.h"
#include "retinue/torch/state_dict.h"
#include "retinue/torch/sync_batch_norm.h"
#include "retinue/torch/tensor_archive.h"
#include "retinue/torch/tensor_parallel.h"
