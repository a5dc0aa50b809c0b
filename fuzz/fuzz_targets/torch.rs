//! Model files that torch wrote.
#![no_main]

use libfuzzer_sys::fuzz_target;
use spotter_engine::model::{row_major, torch_tensors};

fuzz_target!(|file: &[u8]| {
    let read = |at: u64, count: usize| Ok(file[at as usize..][..count].to_vec());
    for tensor in torch_tensors(&read, file.len() as u64).unwrap_or_default() {
        let (start, end) = tensor.info.data_offsets;
        let bytes = &file[start..end];
        if let Some(strides) = tensor.strides {
            assert!(row_major(bytes, &tensor.info, &strides).len() <= bytes.len());
        }
    }
});
