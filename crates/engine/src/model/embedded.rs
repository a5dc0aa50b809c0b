//! The model inside of the binary: a small network trained on the drawn street (`models/embedded`).

/// The three files of a model directory.
pub(super) struct Embedded {
    pub config: &'static [u8],
    pub weights: &'static [u8],
    pub tokenizer: &'static [u8],
}

/// The files compiled in.
pub(super) fn embedded() -> Embedded {
    Embedded {
        config: include_bytes!("../../../../models/embedded/config.json"),
        weights: include_bytes!("../../../../models/embedded/model.safetensors"),
        tokenizer: include_bytes!("../../../../models/embedded/tokenizer.json"),
    }
}
