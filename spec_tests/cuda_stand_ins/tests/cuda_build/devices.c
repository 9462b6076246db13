// Devices without hardware: a preloaded library that answers the calls of CUDA's runtime and driver.
//
// Memory of the devices is memory of the host, so tensors exist and can be copied. Kernels do
// nothing: the stub libraries of spec_tests/cuda_stand_ins/stub_libraries.py accept a launch and
// ignore it. So metadata are right, and values are not. The environment variable CUDA_BUILD_DEVICES
// is the number of devices. The library has the name of the driver's library, libcuda.so.1, and
// replaces it.

#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

enum { SUCCESS = 0, NO_DEVICE = 100, INVALID_DEVICE = 101 };

static _Thread_local int current_device;

static int device_count(void) {
  const char *text = getenv("CUDA_BUILD_DEVICES");
  return text ? atoi(text) : 0;
}

int cudaGetDeviceCount(int *count) {
  *count = device_count();
  return *count ? SUCCESS : NO_DEVICE;
}

int cudaGetDevice(int *device) {
  *device = current_device;
  return SUCCESS;
}

int cudaSetDevice(int device) {
  if (device < 0 || device >= device_count()) return INVALID_DEVICE;
  current_device = device;
  return SUCCESS;
}

// The structure begins with a name and an id. The other numbers must not be 0.
int cudaGetDeviceProperties(int *properties, int device) {
  memset(properties, 0, 64 * sizeof(int));
  for (int index = 64; index < 200; index++) properties[index] = 2048;
  return SUCCESS;
}

int cudaDeviceGetStreamPriorityRange(int *least, int *greatest) {
  *least = 0;
  *greatest = -5;
  return SUCCESS;
}

int cudaStreamCreateWithPriority(void **stream, unsigned flags, int priority) {
  static uintptr_t last_stream = 0x1000;
  *stream = (void *)(last_stream += 16);
  return SUCCESS;
}

int cudaStreamGetPriority(void *stream, int *priority) {
  *priority = 0;
  return SUCCESS;
}

int cudaStreamIsCapturing(void *stream, int *status) {
  *status = 0;
  return SUCCESS;
}

int cudaDeviceCanAccessPeer(int *can_access, int device, int peer) {
  *can_access = 1;
  return SUCCESS;
}

int cudaRuntimeGetVersion(int *version) {
  *version = 13000;
  return SUCCESS;
}

int cudaDriverGetVersion(int *version) { return cudaRuntimeGetVersion(version); }

const char *cudaGetErrorName(int error) { return "cudaError"; }

const char *cudaGetErrorString(int error) {
  return error == INVALID_DEVICE ? "invalid device ordinal" : "unknown error";
}

int cudaMalloc(void **pointer, size_t size) {
  *pointer = malloc(size);
  return *pointer ? SUCCESS : 2;
}

int cudaHostAlloc(void **pointer, size_t size, unsigned flags) { return cudaMalloc(pointer, size); }

int cudaFree(void *pointer) {
  free(pointer);
  return SUCCESS;
}

int cudaFreeHost(void *pointer) { return cudaFree(pointer); }

int cudaMemGetInfo(size_t *free_size, size_t *total) {
  *free_size = *total = (size_t)1 << 34;
  return SUCCESS;
}

int cudaMemcpyAsync(void *to, const void *from, size_t size, int kind, void *stream) {
  memmove(to, from, size);
  return SUCCESS;
}

int cudaMemcpy(void *to, const void *from, size_t size, int kind) {
  return cudaMemcpyAsync(to, from, size, kind, NULL);
}

int cudaMemcpyPeerAsync(void *to, int a, const void *from, int b, size_t size, void *stream) {
  return cudaMemcpyAsync(to, from, size, 0, stream);
}

// Functions of the driver, which PyTorch looks up by name, do nothing.
static int do_nothing(void) { return SUCCESS; }

int cudaGetDriverEntryPointByVersion(const char *name, void **function, unsigned version,
                                     unsigned long long flags, int *status) {
  *function = (void *)do_nothing;
  if (status) *status = 0;
  return SUCCESS;
}

int cudaGetDriverEntryPoint(const char *name, void **function, unsigned long long flags,
                            int *status) {
  return cudaGetDriverEntryPointByVersion(name, function, 0, flags, status);
}

int cuCtxGetCurrent(void **context) {
  *context = (void *)1;
  return SUCCESS;
}

int cuDevicePrimaryCtxGetState(int device, unsigned *flags, int *active) {
  *flags = 0;
  *active = 1;
  return SUCCESS;
}
