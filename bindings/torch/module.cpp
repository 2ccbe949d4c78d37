// The Python module truenorm._C: two functions of positional arguments, parsed by hand, and what this build is.
#include <torch/csrc/Dtype.h>
#include <torch/csrc/DynamicTypes.h>
#include <torch/csrc/Exceptions.h>
#include <torch/csrc/autograd/python_variable.h>
#include <torch/csrc/utils/python_numbers.h>

#include <string_view>

#include "aten.hpp"
#include "eager.hpp"
#include "ops.hpp"

namespace truenorm::binding {

namespace {

// A tensor argument as it was found: exact tensors (and parameters) alone may go past __torch_function__. What has that
// and is no tensor (torch.fx's Proxy) is an undefined one here.
struct Argument {
  const at::Tensor* tensor = nullptr;
  bool exact = true;
};

const at::Tensor& none() {
  static const at::Tensor undefined;
  return undefined;
}

// For whoever passed an argument in another library's place: torch's normalized_shape, or eps where bias is.
const char* order_of_arguments(std::string_view function) {
  return function == "layer_norm"
             ? "layer_norm(x, normalized_shape, weight, bias, eps)"
             : "rms_norm(x, weight, bias, eps), fused_add_rms_norm(x, residual, weight, bias, eps)";
}

Argument tensor_argument(PyObject* object, const char* function, const char* name, bool optional) {
  if (THPVariable_CheckExact(object)) return {&THPVariable_Unpack(object), true};
  if (optional && object == Py_None) return {&none(), true};
  if (THPVariable_Check(object)) return {&THPVariable_Unpack(object), false};
  const bool tensor_like = PyObject_HasAttrString(object, "__torch_function__") == 1;
  TORCH_CHECK_TYPE(tensor_like, "truenorm.", function, ": ", name, ": got ", Py_TYPE(object)->tp_name,
                   "; needs a Tensor", optional ? " or None, in the order " : "",
                   optional ? order_of_arguments(function) : "");
  return {&none(), false};
}

// numpy's bools and complex numbers, which convert to a float all the same.
bool bool_or_complex_array(PyObject* object) {
  const pybind11::object dtype = pybind11::getattr(object, "dtype", pybind11::none());
  const pybind11::object kind = pybind11::getattr(dtype, "kind", pybind11::none());
  return kind.equal(pybind11::str("b")) || kind.equal(pybind11::str("c"));
}

// Whatever Python takes for a float, numpy's among it; but no bool, which nobody means, and no tensor, which a device
// would have to be waited for.
double number(PyObject* object, const char* function, const char* name) {
  if (PyFloat_CheckExact(object)) return PyFloat_AS_DOUBLE(object);
  bool real = PyNumber_Check(object) && !PyBool_Check(object) && !PyComplex_Check(object) &&
              !THPVariable_Check(object) && (PyLong_Check(object) || !bool_or_complex_array(object));
  const double value = real ? PyFloat_AsDouble(object) : 0.0;
  if (real && value == -1.0 && PyErr_Occurred() != nullptr) {
    if (!PyErr_ExceptionMatches(PyExc_TypeError)) throw python_error();
    PyErr_Clear();
    real = false;  // an array of several elements, say
  }
  TORCH_CHECK_TYPE(real, "truenorm.", function, ": ", name, ": got ", Py_TYPE(object)->tp_name, "; needs a number");
  return value;
}

std::string_view text(PyObject* object, const char* function, const char* name) {
  TORCH_CHECK_TYPE(PyUnicode_Check(object), "truenorm.", function, ": ", name, ": got ", Py_TYPE(object)->tp_name,
                   "; needs a string");
  Py_ssize_t size = 0;
  const char* data = PyUnicode_AsUTF8AndSize(object, &size);
  if (data == nullptr) throw python_error();
  return {data, static_cast<std::size_t>(size)};
}

at::ScalarType type_argument(PyObject* object, at::ScalarType otherwise, const char* function, const char* name) {
  if (object == Py_None) return otherwise;
  TORCH_CHECK_TYPE(THPDtype_Check(object), "truenorm.", function, ": ", name, ": got ", Py_TYPE(object)->tp_name,
                   "; needs a torch.dtype or None");
  return reinterpret_cast<THPDtype*>(object)->scalar_type;
}

// What both functions take, in this order: x, weight, bias, residual, residual_dtype, out_dtype; then Norm's.
constexpr Py_ssize_t kTensorArguments = 6;

PyObject* run(const Norm& norm, PyObject* const* arguments) {
  const char* function = norm.name();
  const Argument x = tensor_argument(arguments[0], function, "x", false);
  const Argument weight = tensor_argument(arguments[1], function, "weight", true);
  const Argument bias = tensor_argument(arguments[2], function, "bias", true);
  const Argument residual = tensor_argument(arguments[3], function, "residual", true);
  const bool has_residual = residual.tensor->defined();
  const at::ScalarType x_type = x.tensor->scalar_type();
  const ForwardInputs in{
      *x.tensor,
      *residual.tensor,
      *weight.tensor,
      *bias.tensor,
      type_argument(arguments[4], has_residual ? residual.tensor->scalar_type() : x_type, function, "residual_dtype"),
      type_argument(arguments[5], x_type, function, "out_dtype")};
  if (!(x.exact && weight.exact && bias.exact && residual.exact && eager_serves(in))) Py_RETURN_NOTIMPLEMENTED;

  ForwardOutputs out;
  {
    const pybind11::gil_scoped_release unlocked;
    out = eager_forward(norm, in);
  }
  THPObjectPtr y(THPVariable_Wrap(std::move(out.y)));
  if (!has_residual || !y) return y.release();
  THPObjectPtr residual_out(THPVariable_Wrap(std::move(out.residual_out)));
  if (!residual_out) return nullptr;
  return PyTuple_Pack(2, y.get(), residual_out.get());
}

void check_count(const char* function, Py_ssize_t got, Py_ssize_t needed) {
  TORCH_CHECK_TYPE(got == needed, "_C.", function, ": got ", got, " arguments; needs ", needed);
}

// rms_norm(x, weight, bias, residual, residual_dtype, out_dtype, eps, offset, casting_mode)
PyObject* rms_norm(PyObject*, PyObject* const* arguments, Py_ssize_t count) {
  HANDLE_TH_ERRORS
  check_count("rms_norm", count, kTensorArguments + 3);
  PyObject* const* rest = arguments + kTensorArguments;
  return run({TN_RMS_NORM, rounding_of(text(rest[2], "rms_norm", "casting_mode")), number(rest[0], "rms_norm", "eps"),
              number(rest[1], "rms_norm", "offset"), 1},
             arguments);
  END_HANDLE_TH_ERRORS
}

// layer_norm(x, weight, bias, residual, residual_dtype, out_dtype, eps, offset, columns)
PyObject* layer_norm(PyObject*, PyObject* const* arguments, Py_ssize_t count) {
  HANDLE_TH_ERRORS
  check_count("layer_norm", count, kTensorArguments + 3);
  PyObject* const* rest = arguments + kTensorArguments;
  return run({TN_LAYER_NORM, TN_ROUND_ONCE, number(rest[0], "layer_norm", "eps"),
              number(rest[1], "layer_norm", "offset"), THPUtils_unpackLong(rest[2])},
             arguments);
  END_HANDLE_TH_ERRORS
}

// number(value, function, name): the value as a float, by the rule that holds for eps and offset in calls.
PyObject* checked_number(PyObject*, PyObject* const* arguments, Py_ssize_t count) {
  HANDLE_TH_ERRORS
  check_count("number", count, 3);
  const std::string function(text(arguments[1], "number", "function")), name(text(arguments[2], "number", "name"));
  return PyFloat_FromDouble(number(arguments[0], function.c_str(), name.c_str()));
  END_HANDLE_TH_ERRORS
}

// route_aten(device, on): device is "cpu" or "cuda". Returns whether it was routed before.
PyObject* route(PyObject*, PyObject* const* arguments, Py_ssize_t count) {
  HANDLE_TH_ERRORS
  check_count("route_aten", count, 2);
  const c10::DeviceType device = c10::Device(std::string(text(arguments[0], "route_aten", "device"))).type();
  const bool before = aten_routed(device);
  route_aten(device, PyObject_IsTrue(arguments[1]) == 1);
  return PyBool_FromLong(before);
  END_HANDLE_TH_ERRORS
}

PyObject* has_cuda(PyObject*, PyObject*) { return PyBool_FromLong(tn_has_backend(TN_CUDA)); }
PyObject* version(PyObject*, PyObject*) { return PyUnicode_FromString(tn_version()); }
PyObject* order_version(PyObject*, PyObject*) { return PyLong_FromLong(tn_order_version()); }

PyMethodDef methods[] = {
    {"rms_norm", reinterpret_cast<PyCFunction>(reinterpret_cast<void (*)()>(rms_norm)), METH_FASTCALL,
     "The eager fast path of truenorm.rms_norm; NotImplemented where the operator has to serve."},
    {"layer_norm", reinterpret_cast<PyCFunction>(reinterpret_cast<void (*)()>(layer_norm)), METH_FASTCALL,
     "The eager fast path of truenorm.layer_norm; NotImplemented where the operator has to serve."},
    {"number", reinterpret_cast<PyCFunction>(reinterpret_cast<void (*)()>(checked_number)), METH_FASTCALL,
     "A real number of any kind as a float; TypeError, which names the function and the argument, for anything else."},
    {"route_aten", reinterpret_cast<PyCFunction>(reinterpret_cast<void (*)()>(route)), METH_FASTCALL,
     "Has aten's operators on a kind of device served by ours, or no more."},
    {"has_cuda", has_cuda, METH_NOARGS, "Whether the CUDA backend is in this build."},
    {"version", version, METH_NOARGS, "The core library's version."},
    {"order_version", order_version, METH_NOARGS, "The version of the published order of every sum; 0: not frozen."},
    {nullptr, nullptr, 0, nullptr}};

PyModuleDef module = {PyModuleDef_HEAD_INIT, "truenorm._C", nullptr, -1, methods, nullptr, nullptr, nullptr, nullptr};

}  // namespace

}  // namespace truenorm::binding

PyMODINIT_FUNC PyInit__C() { return PyModule_Create(&truenorm::binding::module); }
