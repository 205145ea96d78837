// hy3.h: importance matrices.
#include <cfloat>

#include "api/handles.h"

using namespace hy3::api;

extern "C" {

hy3_status hy3_collector_new(hy3_model* model, hy3_collector** out) {
    return guard([&] { *out = new hy3_collector{hy3::ImportanceCollector(model->model)}; });
}

void hy3_collector_free(hy3_collector* collector) {
    delete collector;
}

size_t hy3_collector_count(const hy3_collector* collector) {
    return collector->collector.entries().size();
}

hy3_status hy3_collector_entry(const hy3_collector* collector, size_t index, hy3_collected* out) {
    return guard([&] {
        require(index < hy3_collector_count(collector), "There is no entry of that index.");
        const hy3::ImportanceCollector::Entry& entry = collector->collector.entries()[index];
        for (const double sum : entry.sums)
            if (!(sum <= static_cast<double>(FLT_MAX)))  // NaN too
                hy3::fail(hy3::Status::format, "What goes into ", entry.name,
                          " is not finite. The model's weights are damaged: convert or download it again.");
        *out = {view(entry.name), entry.cols, static_cast<int64_t>(entry.counts.size()), entry.sums.data(),
                entry.counts.data()};
    });
}

hy3_status hy3_imatrix_open(const char* path, hy3_imatrix** out) {
    return guard([&] { *out = new hy3_imatrix{hy3::ImatrixFile::open(path)}; });
}

void hy3_imatrix_free(hy3_imatrix* file) {
    delete file;
}

size_t hy3_imatrix_count(const hy3_imatrix* file) {
    return file->file->entries().size();
}

hy3_status hy3_imatrix_name(const hy3_imatrix* file, size_t index, hy3_str* out) {
    return guard([&] {
        require(index < hy3_imatrix_count(file), "There is no entry of that index.");
        *out = view(file->file->entries()[index].name);
    });
}

hy3_status hy3_imatrix_datasets(const hy3_imatrix* file, void (*visit)(void* user, hy3_str name),
                                void* user) {
    return guard([&] {
        for (const std::string_view name : file->file->datasets()) visit(user, view(name));
    });
}

uint32_t hy3_imatrix_chunks(const hy3_imatrix* file) {
    return file->file->chunk_count();
}

hy3_status hy3_imatrix_mean_squares(const hy3_imatrix* file, size_t index, int64_t cols, int64_t n_matrices,
                                    int64_t matrix, float* out, bool* known) {
    return guard([&] {
        require(index < hy3_imatrix_count(file), "There is no entry of that index.");
        require(cols > 0 && n_matrices > 0, "A weight has at least one column and one matrix.");
        require(matrix >= -1 && matrix < n_matrices, "There is no matrix of that index.");
        *known = matrix < 0 ? file->file->mean_squares(index, cols, n_matrices, out)
                            : file->file->mean_squares(index, cols, n_matrices, matrix, out);
    });
}

}  // extern "C"
