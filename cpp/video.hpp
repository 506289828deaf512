// The Python face of the kernels on the pixels of a video.
#pragma once
#include <nanobind/nanobind.h>

void bind_video(nanobind::module_& module);
