use proptest::{collection::vec, prelude::*, sample::select};

use super::*;

/// Written by `torch.save` of torch 2.15.0: a dict with a dict of tensors of each kind, the state of a `torch.nn.Linear`, a list, a
/// parameter, numbers and texts. A seed of the fuzz target, too.
const KINDS: &[u8] = include_bytes!("../../../../../fuzz/seeds/torch/kinds.pt");

fn read(file: &[u8]) -> Result<Vec<FileTensor>, String> {
    let read = |at: u64, count: usize| Ok(file[at as usize..][..count].to_vec());
    torch_tensors(&read, file.len() as u64)
}

/// The row-major bytes of a tensor of `file`.
fn values(file: &[u8], tensor: &FileTensor) -> Vec<u8> {
    let (start, end) = tensor.info.data_offsets;
    match &tensor.strides {
        None => file[start..end].to_vec(),
        Some(strides) => row_major(&file[start..end], &tensor.info, strides),
    }
}

fn f32_bytes(values: &[f32]) -> Vec<u8> {
    values
        .iter()
        .flat_map(|value| value.to_le_bytes())
        .collect()
}

#[test]
fn file_of_torch_has_all_its_tensors() {
    let tensors = read(KINDS).unwrap();
    let base = |row: usize, column: usize| (row * 6 + column) as f32;
    let all = |rows: std::ops::Range<usize>, columns: std::ops::Range<usize>| -> Vec<f32> {
        let rows = rows.flat_map(|row| columns.clone().map(move |column| base(row, column)));
        rows.collect()
    };
    let transposed: Vec<f32> = (0..6)
        .flat_map(|column| (0..4).map(move |row| base(row, column)))
        .collect();
    let half = |values: [f32; 3]| {
        values
            .map(half::f16::from_f32)
            .map(|v| v.to_le_bytes())
            .concat()
    };
    let brain = |values: [f32; 3]| {
        values
            .map(half::bf16::from_f32)
            .map(|v| v.to_le_bytes())
            .concat()
    };
    let f32s = |shape: &[usize], values: &[f32]| (Dtype::F32, shape.to_vec(), f32_bytes(values));
    let expected = [
        ("model.f32", f32s(&[4, 6], &all(0..4, 0..6))),
        ("model.transposed", f32s(&[6, 4], &transposed)),
        ("model.view", f32s(&[2, 3], &all(1..3, 2..5))),
        (
            "model.bf16",
            (Dtype::BF16, vec![3], brain([-3.0, 0.5, 2.0])),
        ),
        (
            "model.f16",
            (Dtype::F16, vec![1, 3], half([-3.0, 0.5, 2.0])),
        ),
        // 1, -2, 0.5 and 448 in E4M3.
        (
            "model.f8",
            (Dtype::F8_E4M3, vec![2, 2], vec![0x38, 0xc0, 0x30, 0x7e]),
        ),
        (
            "model.i64",
            (
                Dtype::I64,
                vec![3],
                [1i64, -2, 3].map(i64::to_le_bytes).concat(),
            ),
        ),
        ("model.scalar", f32s(&[], &[2.5])),
        ("model.empty", f32s(&[0, 3], &[])),
        ("linear.weight", f32s(&[1, 2], &[1.0, 2.0])),
        ("linear.bias", f32s(&[1], &[0.5])),
        ("list.0", f32s(&[2], &[1.0, 1.0])),
        ("parameter", f32s(&[2], &[1.0, 1.0])),
    ];
    assert_eq!(tensors.len(), expected.len());
    for (tensor, (name, (dtype, shape, bytes))) in tensors.iter().zip(expected) {
        assert_eq!(tensor.name, name);
        assert_eq!(
            (tensor.info.dtype, &tensor.info.shape),
            (dtype, &shape),
            "{name}"
        );
        assert_eq!(values(KINDS, tensor), bytes, "{name}");
    }
}

#[test]
fn every_damaged_byte_of_a_file_is_survived() {
    for at in 0..KINDS.len() {
        for flip in [0xff, 1, 0x80] {
            let mut file = KINDS.to_vec();
            file[at] ^= flip;
            let _ = read(&file).map(|all| {
                all.iter()
                    .map(|one| values(&file, one).len())
                    .sum::<usize>()
            });
        }
        assert!(read(&KINDS[..at]).is_err(), "cut off at {at}");
    }
}

/// A zip archive without compression. With `is_large`, its numbers are in 64 bits.
fn zip(entries: &[(&str, &[u8])], is_large: bool) -> Vec<u8> {
    let (mut file, mut list) = (Vec::new(), Vec::new());
    let small = |number: u64| (if is_large { u32::MAX } else { number as u32 }).to_le_bytes();
    for (name, content) in entries {
        let start = file.len() as u64;
        file.extend(LOCAL);
        file.extend([0; 22]);
        file.extend((name.len() as u16).to_le_bytes());
        file.extend([0; 2]);
        file.extend(name.as_bytes());
        file.extend(*content);
        let length = content.len() as u64;
        let extra = match is_large {
            true => [
                &[9, 0, 1, 0, 7, 1, 0, 24, 0][..],
                &[length, length, start].map(u64::to_le_bytes).concat(),
            ]
            .concat(),
            false => Vec::new(),
        };
        list.extend(b"PK\x01\x02");
        list.extend([0; 16]);
        list.extend([small(length), small(length)].concat());
        list.extend((name.len() as u16).to_le_bytes());
        list.extend((extra.len() as u16).to_le_bytes());
        list.extend([0; 10]);
        list.extend(small(start));
        list.extend(name.as_bytes());
        list.extend(extra);
    }
    let (start, length) = (file.len() as u64, list.len() as u64);
    file.extend(list);
    let large_end = file.len() as u64;
    if is_large {
        file.extend(b"PK\x06\x06");
        file.extend([0; 36]);
        file.extend([length, start].map(u64::to_le_bytes).concat());
        file.extend(b"PK\x06\x07");
        file.extend([0; 4]);
        file.extend(large_end.to_le_bytes());
        file.extend([0; 4]);
    }
    file.extend(b"PK\x05\x06");
    file.extend([0; 8]);
    file.extend([small(length), small(start)].concat());
    file.extend([0; 2]);
    file
}

const LOCAL: &[u8] = b"PK\x03\x04";

/// A tensor to write.
#[derive(Clone, Debug)]
struct Written {
    class: &'static str,
    shape: Vec<usize>,
    strides: Vec<usize>,
    offset: usize,
    storage: Vec<u8>,
    size: usize,
}

fn integer(pickle: &mut Vec<u8>, number: usize) {
    pickle.push(b'J');
    pickle.extend((number as u32).to_le_bytes());
}

fn text(pickle: &mut Vec<u8>, text: &str) {
    pickle.push(b'X');
    pickle.extend((text.len() as u32).to_le_bytes());
    pickle.extend(text.as_bytes());
}

/// The instructions for a tensor in the storage `key`.
fn tensor(pickle: &mut Vec<u8>, key: &str, written: &Written) {
    pickle.extend(b"ctorch._utils\n_rebuild_tensor_v2\n((");
    text(pickle, "storage");
    pickle.extend(format!("ctorch\n{}\n", written.class).as_bytes());
    text(pickle, key);
    text(pickle, "cpu");
    integer(pickle, written.storage.len() / written.size);
    pickle.extend(b"tQ");
    integer(pickle, written.offset);
    for sizes in [&written.shape, &written.strides] {
        pickle.push(b'(');
        sizes.iter().for_each(|&size| integer(pickle, size));
        pickle.push(b't');
    }
    pickle.extend(b"\x89ccollections\nOrderedDict\n)RtR");
}

/// A file whose dict has these tensors by their index.
fn torch_file(all: &[Written], is_large: bool) -> Vec<u8> {
    let mut pickle = b"\x80\x02}q\x00(".to_vec();
    let mut storages = Vec::new();
    for (index, written) in all.iter().enumerate() {
        text(&mut pickle, &format!("t{index}"));
        tensor(&mut pickle, &index.to_string(), written);
        storages.push((format!("any/data/{index}"), written.storage.clone()));
    }
    pickle.extend(b"u.");
    let mut entries = vec![
        ("any/data.pkl", pickle.as_slice()),
        ("any/byteorder", b"little"),
    ];
    entries.extend(
        storages
            .iter()
            .map(|(name, bytes)| (name.as_str(), bytes.as_slice())),
    );
    zip(&entries, is_large)
}

fn written() -> impl Strategy<Value = Written> {
    let class = select(vec![
        ("FloatStorage", 4),
        ("HalfStorage", 2),
        ("BFloat16Storage", 2),
        ("LongStorage", 8),
    ]);
    let shape = vec(0..5usize, 0..4);
    (
        class,
        shape,
        any::<bool>(),
        0..3usize,
        0..3usize,
        any::<u8>(),
    )
        .prop_map(|((class, size), shape, is_transposed, offset, gap, seed)| {
            let mut order: Vec<usize> = (0..shape.len()).rev().collect();
            if is_transposed {
                order.reverse();
            }
            let (mut strides, mut next) = (vec![0; shape.len()], 1);
            for axis in order {
                strides[axis] = next;
                next = next * shape[axis].max(1) + gap;
            }
            let count = offset + next;
            let storage = (0..count * size).map(|i| (i as u8).wrapping_mul(31) ^ seed);
            Written {
                class,
                shape,
                strides,
                offset,
                storage: storage.collect(),
                size,
            }
        })
}

proptest! {
    #[test]
    fn written_tensors_are_read_back(all in vec(written(), 0..6), is_large: bool) {
        let file = torch_file(&all, is_large);
        let tensors = read(&file).unwrap();
        prop_assert_eq!(tensors.len(), all.len());
        for written in &all {
            let index = all.iter().position(|other| std::ptr::eq(other, written)).unwrap();
            let name = format!("t{index}");
            let tensor = tensors.iter().find(|tensor| tensor.name == name).unwrap();
            let mut expected: Vec<u8> = Vec::new();
            let count: usize = written.shape.iter().product();
            for flat in 0..count {
                let (mut rest, mut at) = (flat, written.offset);
                for (size, stride) in written.shape.iter().zip(&written.strides).rev() {
                    at += rest % size * stride;
                    rest /= size;
                }
                expected.extend(&written.storage[at * written.size..][..written.size]);
            }
            prop_assert_eq!(values(&file, tensor), expected);
        }
    }

    #[test]
    fn any_instructions_end_in_a_value_or_an_error(pickle in vec(any::<u8>(), 0..200)) {
        let _ = read(&zip(&[("a/data.pkl", &pickle)], false));
        let alphabet = b"}](atuseRQbqh)N\x85\x86\x87.K\x01";
        let chosen: Vec<u8> = pickle.iter().map(|&byte| alphabet[usize::from(byte) % alphabet.len()]).collect();
        let _ = read(&zip(&[("a/data.pkl", &chosen)], false));
    }

    #[test]
    fn any_bytes_are_no_panic(file in vec(any::<u8>(), 0..300)) {
        let _ = read(&file);
        let _ = read(&[LOCAL, &file, b"PK\x05\x06", &[0; 18]].concat());
    }
}

fn refused(pickle: &[u8]) -> String {
    read(&zip(
        &[("a/data.pkl", pickle), ("a/data/0", &[0; 8])],
        false,
    ))
    .unwrap_err()
}

#[test]
fn functions_and_instructions_of_other_pickles_are_refused() {
    for (pickle, expected) in [
        (
            &b"\x80\x02cos\nsystem\nX\x02\0\0\0id\x85R."[..],
            "instruction 0x63 ('c') at byte 2 of its pickle: it names \"os\" \"system\", which is no part of a tensor; refused, and \
             nothing was executed",
        ),
        (
            b"\x80\x02ctorch.nn.modules.linear\nLinear\n)\x81.",
            "\"torch.nn.modules.linear\" \"Linear\"",
        ),
        (b"\x80\x02ctorch\nload\n.", "\"torch\" \"load\""),
        (
            b"\x80\x02ccollections\nOrderedDict\n)\x81.",
            "instruction 0x81 ('\\x81') at byte 28 of its pickle: files of tensors",
        ),
        (
            b"\x80\x02ccollections\nOrderedDict\nK\x01\x85R.",
            "OrderedDict cannot be called with these arguments",
        ),
        (b"\x80\x04}.", "protocol 4 is not read, only 2"),
        (b"\x80\x02}", "its pickle is cut off"),
        (b"\x80\x02.", "the stack is empty"),
        (b"\x80\x02(}K\x01s.", "there is no dict"),
        (b"\x80\x02K\x01)R.", "there is no function to call"),
    ] {
        let error = refused(pickle);
        assert!(error.contains(expected), "{expected}: {error}");
    }
}

#[test]
fn bombs_end_within_their_bounds() {
    let many = [b"\x80\x02".as_slice(), &b"N".repeat(INSTRUCTIONS_MAX + 1)].concat();
    assert!(refused(&many).contains("more than 1000000 instructions"));
    // Each list names the one before twice.
    let mut doubled = b"\x80\x02]q\x00".to_vec();
    for slot in 1..200u8 {
        doubled.extend([b'h', slot - 1, b'h', slot - 1, 0x86, b'q', slot]);
    }
    doubled.push(b'.');
    assert!(refused(&doubled).contains("nested deeper than 16"));
    let nested = [b"\x80\x02)".as_slice(), &b"\x85".repeat(500_000), b"."].concat();
    assert!(refused(&nested).contains("nested deeper than 16"));
    // A list in itself.
    assert!(refused(b"\x80\x02]q\x00h\x00a.").contains("nested deeper than 16"));
    let long = "k".repeat(NAME_MAX_BYTES + 1);
    let mut keyed = b"\x80\x02}".to_vec();
    text(&mut keyed, &long);
    keyed.extend(b"Ns.");
    assert!(refused(&keyed).contains("bytes; 512 at most"));
}

#[test]
fn tensor_outside_of_its_storage_is_named() {
    let good = Written {
        class: "FloatStorage",
        shape: vec![2, 3],
        strides: vec![3, 1],
        offset: 0,
        storage: vec![0; 24],
        size: 4,
    };
    assert!(read(&torch_file(std::slice::from_ref(&good), false)).is_ok());
    let huge = usize::from(u16::MAX) << 15;
    for (shape, strides, offset) in [
        (vec![2, 3], vec![3, 1], 1),
        (vec![3, 2], vec![3, 1], 0),
        (vec![2, 3], vec![6, 1], 0),
        // Repeated values, as of `expand`.
        (vec![huge, huge, huge], vec![0, 0, 0], 0),
        (vec![7], vec![0], 0),
        (vec![huge; 8], vec![huge; 8], huge),
        (vec![1; 9], vec![1; 9], 0),
        (vec![2], vec![3, 1], 0),
    ] {
        let wrong = Written {
            shape,
            strides,
            offset,
            ..good.clone()
        };
        let error = read(&torch_file(std::slice::from_ref(&wrong), false)).unwrap_err();
        let names_it = error.contains("tensor \"t0\": shape") || error.contains("sizes and");
        assert!(names_it, "{wrong:?}: {error}");
    }
    let other_class = Written {
        class: "LongStorage",
        ..good
    };
    let error = read(&torch_file(&[other_class], false)).unwrap_err();
    assert!(!error.is_empty());
}

#[test]
fn archive_that_torch_does_not_write_is_named() {
    let pickle = b"\x80\x02}.".as_slice();
    let big = zip(&[("a/data.pkl", pickle), ("a/byteorder", b"big")], false);
    let double = zip(&[("a/data.pkl", pickle), ("a/data.pkl", pickle)], false);
    let mut compressed = zip(&[("a/data.pkl", pickle)], false);
    let at = compressed
        .windows(4)
        .position(|window| window == b"PK\x01\x02");
    compressed[at.unwrap() + 10] = 8;
    for (file, expected) in [
        (big, "not little-endian"),
        (double, "two entries \"a/data.pkl\""),
        (compressed, "\"a/data.pkl\" is compressed or encrypted"),
        (zip(&[("model.json", b"{}")], false), "it has no data.pkl"),
        (
            LOCAL.to_vec(),
            "its list of entries is missing: it is cut off",
        ),
    ] {
        let error = read(&file).unwrap_err();
        assert!(error.contains(expected), "{expected}: {error}");
    }
}

#[test]
fn torch_file_is_a_source_of_tensors_like_safetensors() {
    use crate::model::{TensorSource, WeightsError, WeightsFile};
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("model_fp8.pt");
    std::fs::write(&path, KINDS).unwrap();
    let mut file = WeightsFile::open(&path).unwrap();
    // The loader removes a leading `model.`.
    let transposed = file.tensor("transposed", &[6, 4]).unwrap();
    assert_eq!(
        transposed.to_f32().unwrap()[..5],
        [0.0, 6.0, 12.0, 18.0, 1.0]
    );
    assert_eq!(
        file.tensor("bf16", &[3]).unwrap().to_f32().unwrap(),
        [-3.0, 0.5, 2.0]
    );
    assert!(
        file.tensor("i64", &[3])
            .unwrap_err()
            .to_string()
            .contains("tensor model.i64 holds I64")
    );
    assert!(matches!(
        file.tensor("none", &[]),
        Err(WeightsError::NotFound(_))
    ));
    assert!(file.unused().contains(&"linear.weight".to_owned()));
    std::fs::write(&path, &KINDS[..2000]).unwrap();
    let error = WeightsFile::open(&path).unwrap_err().to_string();
    assert!(
        error.contains("model_fp8.pt is not a torch file of tensors: "),
        "{error}"
    );
}
