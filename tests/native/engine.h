// The engine's C entry points by type and name, for the drivers beside this file.
#pragma once

#include "../../iou_losses/native/csrc/family.h"
#include "../../iou_losses/native/csrc/paired.h"
#include "../../iou_losses/native/csrc/suppress.h"

using Count = Index;
template <class T>
using Paired = void(const PairedCall<T>*);
template <class T>
using Matrix = void(const MatrixCall<T>*);
template <class T>
using BestPartner = void(const BestCall<T>*);
template <class T>
using Suppress = void(const SuppressCall<T>*);
template <class T>
using SoftSuppress = void(const SoftSuppressCall<T>*);

#define LOSSES(X) X(iou) X(iou_cost) X(giou_cost) X(diou_cost) X(ciou_cost) FAMILY(X)
#define SIMILARITIES(X) X(iou) X(giou) X(diou) X(ciou)

#define DECLARE(KIND, NAME) KIND<float> NAME##_f32; KIND<double> NAME##_f64;
#define DECLARE_LOSS(NAME) DECLARE(Paired, NAME)
#define DECLARE_SIMILARITY(NAME)   \
    DECLARE(Matrix, NAME##_matrix) \
    DECLARE(BestPartner, NAME##_best) \
    DECLARE(Suppress, NAME##_suppress) \
    DECLARE(SoftSuppress, NAME##_soft_suppress)
extern "C" {
LOSSES(DECLARE_LOSS)
SIMILARITIES(DECLARE_SIMILARITY)
}

template <class T>
struct Loss {
    const char* name;
    Paired<T>* run;
};
template <class T>
struct Similarity {
    const char* name;
    Matrix<T>* matrix;
    BestPartner<T>* best;
    Suppress<T>* suppress;
    SoftSuppress<T>* soft_suppress;
};

#define LOSS_OF(NAME, SUFFIX) {#NAME, NAME##_##SUFFIX},
#define SIMILARITY_OF(NAME, SUFFIX) \
    {#NAME, NAME##_matrix_##SUFFIX, NAME##_best_##SUFFIX, NAME##_suppress_##SUFFIX, NAME##_soft_suppress_##SUFFIX},
#define LOSS_F32(NAME) LOSS_OF(NAME, f32)
#define LOSS_F64(NAME) LOSS_OF(NAME, f64)
#define SIMILARITY_F32(NAME) SIMILARITY_OF(NAME, f32)
#define SIMILARITY_F64(NAME) SIMILARITY_OF(NAME, f64)

template <class T>
struct Engine;
template <>
struct Engine<float> {
    static constexpr Loss<float> losses[] = {LOSSES(LOSS_F32)};
    static constexpr Similarity<float> similarities[] = {SIMILARITIES(SIMILARITY_F32)};
};
template <>
struct Engine<double> {
    static constexpr Loss<double> losses[] = {LOSSES(LOSS_F64)};
    static constexpr Similarity<double> similarities[] = {SIMILARITIES(SIMILARITY_F64)};
};

constexpr int FORMAT_COUNT = 5;
