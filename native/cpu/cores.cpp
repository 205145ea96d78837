#include "cpu/cores.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <fstream>
#include <set>
#include <string_view>
#include <thread>

#if defined(__linux__)
#include <sched.h>
#endif

namespace hy3::cpu {
namespace {

std::string first_line(const std::string& path) {
    std::ifstream in(path);
    std::string line;
    std::getline(in, line);
    return line;
}

// Quota over period, both in microseconds; 0: no limit, or not readable ("max", -1, no such file).
double share(const std::string& quota, const std::string& period) {
    const double q = std::strtod(quota.c_str(), nullptr), p = std::strtod(period.c_str(), nullptr);
    return q > 0.0 && p > 0.0 ? q / p : 0.0;
}

double share_v1(const std::string& directory) {
    return share(first_line(directory + "/cpu.cfs_quota_us"), first_line(directory + "/cpu.cfs_period_us"));
}

double share_v2(const std::string& directory) {
    const std::string line = first_line(directory + "/cpu.max");  // "QUOTA PERIOD" or "max PERIOD"
    const size_t space = line.find(' ');
    return space == std::string::npos ? 0.0 : share(line.substr(0, space), line.substr(space + 1));
}

// The smallest share of `path` and the groups above it, the mount's own root included. In a container the
// path may name groups of the host that the mount does not show; they are passed over.
template <typename Share>
double smallest_share(const std::string& mount, std::string path, const Share& share_of) {
    double smallest = 0.0;
    while (true) {
        const double here = share_of(mount + path);
        if (here > 0.0 && (smallest == 0.0 || here < smallest)) smallest = here;
        const size_t slash = path.rfind('/');
        if (slash == std::string::npos) return smallest;
        path.resize(slash);
    }
}

#if defined(__linux__)
// Cores of the affinity mask; hardware threads that share a core are one. 0: the mask is not known.
int cores_in_mask() {
    cpu_set_t mask;
    if (sched_getaffinity(0, sizeof mask, &mask) != 0) return 0;
    std::set<std::string> cores;
    for (int cpu = 0; cpu < CPU_SETSIZE; cpu++) {
        if (!CPU_ISSET(cpu, &mask)) continue;
        const std::string topology = "/sys/devices/system/cpu/cpu" + std::to_string(cpu) + "/topology/";
        const std::string siblings = first_line(topology + "thread_siblings_list");
        cores.insert(siblings.empty() ? std::to_string(cpu) : siblings);
    }
    return static_cast<int>(cores.size());
}
#endif

}  // namespace

// Lines of /proc/self/cgroup are ID:CONTROLLERS:PATH; version 2 has ID 0 and no controllers.
double cgroup_cores(const std::string& root) {
    double smallest = 0.0;
    const auto limit = [&](double cores) {
        if (cores > 0.0 && (smallest == 0.0 || cores < smallest)) smallest = cores;
    };
    std::ifstream groups(root + "/proc/self/cgroup");
    for (std::string line; std::getline(groups, line);) {
        const size_t first = line.find(':');
        const size_t second = first == std::string::npos ? first : line.find(':', first + 1);
        if (second == std::string::npos) continue;
        const std::string controllers = "," + line.substr(first + 1, second - first - 1) + ",";
        const std::string path = line.substr(second + 1);
        const std::string mounts = root + "/sys/fs/cgroup";
        if (controllers == ",,") {
            limit(smallest_share(mounts, path, share_v2));
            limit(smallest_share(mounts + "/unified", path, share_v2));  // beside version 1
        } else if (controllers.find(",cpu,") != std::string::npos) {
            limit(smallest_share(mounts + "/cpu", path, share_v1));
        }
    }
    return smallest;
}

int usable_cores() {
    int cores = static_cast<int>(std::thread::hardware_concurrency());
#if defined(__linux__)
    if (const int in_mask = cores_in_mask(); in_mask > 0) cores = in_mask;
    if (const double share = cgroup_cores(""); share > 0.0 && share < cores)
        cores = static_cast<int>(std::ceil(share - 0.001));  // a quota of 3.0004 cores means 3
#endif
    return std::max(1, cores);
}

}  // namespace hy3::cpu
