// How many threads a computation may use here.
#pragma once

#include <string>

namespace hy3::cpu {

// Physical cores that this process may use: its affinity mask without second hardware threads of a core, and
// not more than the share of the cgroups it is in, rounded up. At least 1.
int usable_cores();

// CPU limit in cores of the process's cgroup and those above it, version 1 or 2; 0: none. `root` is put
// before /proc and /sys.
double cgroup_cores(const std::string& root);

}  // namespace hy3::cpu
