#include "retinue/collective/types.h"

namespace retinue {

namespace {

enum class Kind { kUnknown, kInteger, kFloating, kBool, kComplex };

Kind kind_of(Dtype dtype) {
  if (dtype <= Dtype::kUint64) return Kind::kInteger;
  if (dtype <= Dtype::kFloat64) return Kind::kFloating;
  if (dtype == Dtype::kBool) return Kind::kBool;
  if (dtype <= Dtype::kComplex128) return Kind::kComplex;
  return Kind::kUnknown;
}

}  // namespace

std::size_t size_of(Dtype dtype) {
  switch (dtype) {
    case Dtype::kInt8:
    case Dtype::kUint8:
    case Dtype::kBool:
    case Dtype::kBytes:
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
    case Dtype::kComplex64:
      return 8;
    case Dtype::kComplex128:
      return 16;
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
    case Dtype::kBool:
      return "bool";
    case Dtype::kComplex64:
      return "complex64";
    case Dtype::kComplex128:
      return "complex128";
    case Dtype::kBytes:
      return "bytes";
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
    case ReduceOp::kPremulSum:
      return "premul_sum";
    case ReduceOp::kBitAnd:
      return "bit_and";
    case ReduceOp::kBitOr:
      return "bit_or";
    case ReduceOp::kBitXor:
      return "bit_xor";
    case ReduceOp::kLogicalAnd:
      return "logical_and";
    case ReduceOp::kLogicalOr:
      return "logical_or";
    case ReduceOp::kLogicalXor:
      return "logical_xor";
    case ReduceOp::kFunction:
      return "function";
  }
  return "unknown reduction";
}

bool is_defined(ReduceOp op, Dtype dtype) {
  const Kind kind = kind_of(dtype);
  if (kind == Kind::kUnknown) return false;
  switch (op) {
    case ReduceOp::kSum:
    case ReduceOp::kProduct:
      return true;
    case ReduceOp::kAvg:
      return kind != Kind::kBool;
    case ReduceOp::kMin:
    case ReduceOp::kMax:
      return kind != Kind::kComplex;
    case ReduceOp::kPremulSum:
      return kind == Kind::kFloating || kind == Kind::kComplex;
    case ReduceOp::kBitAnd:
    case ReduceOp::kBitOr:
    case ReduceOp::kBitXor:
    case ReduceOp::kLogicalAnd:
    case ReduceOp::kLogicalOr:
    case ReduceOp::kLogicalXor:
      return kind == Kind::kInteger || kind == Kind::kBool;
    case ReduceOp::kFunction:
      return false;
  }
  return false;
}

}  // namespace retinue
