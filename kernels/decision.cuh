// The decision of a row. The layout is that of DecisionRecord in cuda/record.rs.
#pragma once
#include "common.cuh"

enum DecisionKind { END = 0, COORD = 1, SIZE = 2, TOKEN = 3, NOTHING = 4 };

struct Decision {
    int kind;
    int first;          // coordinate bin, width bin or token id
    int second;         // height bin, or the coordinate bin that goes with a token
    float probability;
    float sharpness;
    int pad[3];
};
