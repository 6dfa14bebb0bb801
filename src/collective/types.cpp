#include "retinue/collective/types.h"

namespace retinue {

std::size_t size_of(Dtype dtype) {
  switch (dtype) {
    case Dtype::kInt8:
    case Dtype::kUint8:
      return 1;
    case Dtype::kInt16:
    case Dtype::kUint16:
    case Dtype::kBFloat16:
    case Dtype::kFloat16:
      return 2;
    case Dtype::kInt32:
    case Dtype::kUint32:
    case Dtype::kFloat32:
      return 4;
    case Dtype::kInt64:
    case Dtype::kUint64:
    case Dtype::kFloat64:
      return 8;
  }
  return 0;
}

std::string_view name_of(Dtype dtype) {
  switch (dtype) {
    case Dtype::kInt8:
      return "int8";
    case Dtype::kInt16:
      return "int16";
    case Dtype::kInt32:
      return "int32";
    case Dtype::kInt64:
      return "int64";
    case Dtype::kUint8:
      return "uint8";
    case Dtype::kUint16:
      return "uint16";
    case Dtype::kUint32:
      return "uint32";
    case Dtype::kUint64:
      return "uint64";
    case Dtype::kBFloat16:
      return "bf16";
    case Dtype::kFloat16:
      return "fp16";
    case Dtype::kFloat32:
      return "fp32";
    case Dtype::kFloat64:
      return "fp64";
  }
  return "unknown dtype";
}

std::string_view name_of(ReduceOp op) {
  switch (op) {
    case ReduceOp::kSum:
      return "sum";
    case ReduceOp::kAvg:
      return "avg";
    case ReduceOp::kMin:
      return "min";
    case ReduceOp::kMax:
      return "max";
    case ReduceOp::kProduct:
      return "product";
  }
  return "unknown reduction";
}

}  // namespace retinue
