//! Reads the tensors of a file that `torch.save` wrote: a zip archive with a pickle, which names them, and their values beside it.
//!
//! Nothing is executed. A pickle is a program that may call any function; this reader has the few instructions with which such files build
//! dicts, lists, texts, numbers and tensors, and refuses every other instruction and every other function by its name. Instructions and values
//! are counted, so no file needs more memory than [`INSTRUCTIONS_MAX`] of them.

mod archive;

use std::{collections::HashMap, rc::Rc};

use safetensors::tensor::{Dtype, TensorInfo};
use spotter_core::plain_line;

use self::archive::{Archive, ByteRange, ReadAt};

/// Most instructions of a pickle. A tensor has about 40.
const INSTRUCTIONS_MAX: usize = 1_000_000;
/// Most values that are visited for their tensors; a dict that is named twice counts twice.
const VISITS_MAX: usize = 100_000;
/// Deepest dict in a dict.
const DEPTH_MAX: usize = 16;
/// Longest name of a tensor.
const NAME_MAX_BYTES: usize = 512;
/// Most dimensions of a tensor.
const DIMENSIONS_MAX: usize = 8;

/// A tensor that a file names.
#[derive(Clone, Debug)]
pub struct FileTensor {
    /// The keys that lead to it, with dots between them.
    pub name: String,
    /// Its offsets are bytes of the file, and all its values are within them.
    pub info: TensorInfo,
    /// Values between two neighbours in each dimension; `None` when the values are row-major without gaps.
    pub strides: Option<Vec<usize>>,
}

/// Is this the begin of a torch file?
pub fn is_torch_file(begin: &[u8]) -> bool {
    begin.starts_with(archive::LOCAL_HEADER)
}

/// All tensors of a torch file of `length` bytes. The error says what is wrong with it. Blocks on the disk.
pub fn torch_tensors(read: ReadAt<'_>, length: u64) -> Result<Vec<FileTensor>, String> {
    let archive = Archive::open(read, length)?;
    let pickle = archive.pickle()?;
    let mut machine = PickleMachine::new(&pickle);
    let root = machine.run()?;
    let mut found = Vec::new();
    let mut walk = Walk {
        machine: &machine,
        archive: &archive,
        visits: 0,
        found: &mut found,
    };
    walk.visit("", &root, 0)?;
    Ok(found)
}

/// The row-major values of a tensor with these strides. `bytes` are those of its [`TensorInfo`], each value has `size` of them.
pub fn row_major(bytes: &[u8], info: &TensorInfo, strides: &[usize]) -> Vec<u8> {
    let size = value_bytes(info.dtype).unwrap_or(1);
    let count: usize = info.shape.iter().product();
    let mut values = Vec::with_capacity(count * size);
    let mut index = vec![0; info.shape.len()];
    for _ in 0..count {
        let at: usize = index
            .iter()
            .zip(strides)
            .map(|(i, stride)| i * stride)
            .sum();
        values.extend_from_slice(&bytes[at * size..][..size]);
        for (i, &length) in index.iter_mut().zip(&info.shape).rev() {
            *i += 1;
            if *i < length {
                break;
            }
            *i = 0;
        }
    }
    values
}

/// Bytes of one value; `None` when they are no whole number.
fn value_bytes(dtype: Dtype) -> Option<usize> {
    match dtype.bitsize() {
        bits if bits % 8 == 0 => Some(bits / 8),
        _ => None,
    }
}

/// The storage classes and dtypes of torch that are read.
fn dtype_of(name: &str) -> Option<Dtype> {
    Some(match name {
        "BFloat16Storage" | "bfloat16" => Dtype::BF16,
        "HalfStorage" | "float16" => Dtype::F16,
        "FloatStorage" | "float32" => Dtype::F32,
        "DoubleStorage" | "float64" => Dtype::F64,
        "float8_e4m3fn" => Dtype::F8_E4M3,
        "LongStorage" | "int64" => Dtype::I64,
        "IntStorage" | "int32" => Dtype::I32,
        "ByteStorage" | "uint8" => Dtype::U8,
        "CharStorage" | "int8" => Dtype::I8,
        "BoolStorage" | "bool" => Dtype::BOOL,
        _ => return None,
    })
}

/// What a pickle can name.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Global {
    OrderedDict,
    /// `_rebuild_tensor_v2`: the type is that of the storage.
    RebuildTensor,
    /// `_rebuild_tensor_v3`: the type is an argument.
    RebuildTypedTensor,
    RebuildParameter,
    /// A storage class or a dtype.
    Type(Dtype),
    UntypedStorage,
}

/// A value of a pickle. Containers are in [`PickleMachine::containers`], so that none of them is dropped or compared recursively.
#[derive(Clone, Debug)]
enum Value {
    /// A value that no tensor depends on.
    Other,
    Integer(i64),
    Text(Rc<str>),
    Global(Global),
    Container(usize),
    Storage(Rc<Storage>),
    Tensor(Rc<StoredTensor>),
}

#[derive(Debug)]
enum Container {
    Tuple(Vec<Value>),
    List(Vec<Value>),
    Dict(Vec<(Value, Value)>),
}

#[derive(Debug)]
struct Storage {
    /// `None`: bytes without a type.
    dtype: Option<Dtype>,
    /// Name of its file in the archive.
    key: Rc<str>,
    /// Values, or bytes without a type.
    length: usize,
}

#[derive(Debug)]
struct StoredTensor {
    storage: Rc<Storage>,
    dtype: Dtype,
    /// Values before the first.
    offset: usize,
    shape: Vec<usize>,
    strides: Vec<usize>,
}

/// Follows the instructions of a pickle.
struct PickleMachine<'a> {
    bytes: &'a [u8],
    at: usize,
    stack: Vec<Value>,
    /// Lengths of the stack at the marks.
    marks: Vec<usize>,
    memo: HashMap<u32, Value>,
    containers: Vec<Container>,
}

impl<'a> PickleMachine<'a> {
    fn new(bytes: &'a [u8]) -> Self {
        Self {
            bytes,
            at: 0,
            stack: Vec::new(),
            marks: Vec::new(),
            memo: HashMap::new(),
            containers: Vec::new(),
        }
    }

    /// The value that the pickle leaves.
    fn run(&mut self) -> Result<Value, String> {
        for _ in 0..INSTRUCTIONS_MAX {
            let (at, code) = (self.at, self.byte()?);
            if code == b'.' {
                return self.pop();
            }
            self.step(code).map_err(|reason| {
                let shown = [code].escape_ascii().to_string();
                format!("instruction {code:#04x} ('{shown}') at byte {at} of its pickle: {reason}")
            })?;
        }
        Err(format!(
            "its pickle has more than {INSTRUCTIONS_MAX} instructions"
        ))
    }

    fn step(&mut self, code: u8) -> Result<(), String> {
        let value = match code {
            // PROTO
            0x80 => return self.protocol(),
            // MARK
            b'(' => {
                self.marks.push(self.stack.len());
                return Ok(());
            }
            // BINPUT, LONG_BINPUT
            b'q' | b'r' => {
                let slot = self.slot(code == b'r')?;
                let value = self.stack.last().ok_or("the stack is empty")?;
                self.memo.insert(slot, value.clone());
                return Ok(());
            }
            // APPEND, APPENDS
            b'a' => return self.append(1),
            b'e' => {
                let count = self.above_mark()?;
                return self.append(count);
            }
            // SETITEM, SETITEMS
            b's' => return self.set_items(2),
            b'u' => {
                let count = self.above_mark()?;
                return self.set_items(count);
            }
            // BUILD: the attributes of a dict name no tensors.
            b'b' => {
                self.pop()?;
                return self.dict().map(drop);
            }
            // BINGET, LONG_BINGET
            b'h' | b'j' => {
                let slot = self.slot(code == b'j')?;
                let value = self.memo.get(&slot);
                value.ok_or("nothing was kept there")?.clone()
            }
            // EMPTY_DICT, EMPTY_LIST, EMPTY_TUPLE
            b'}' => self.container(Container::Dict(Vec::new())),
            b']' => self.container(Container::List(Vec::new())),
            b')' => self.container(Container::Tuple(Vec::new())),
            // TUPLE1, TUPLE2, TUPLE3, TUPLE
            0x85..=0x87 => self.tuple(usize::from(code) - 0x84)?,
            b't' => {
                let count = self.above_mark()?;
                self.tuple(count)?
            }
            // NONE, NEWTRUE, NEWFALSE, BINFLOAT
            b'N' | 0x88 | 0x89 => Value::Other,
            b'G' => {
                self.take(8)?;
                Value::Other
            }
            // BININT1, BININT2, BININT, LONG1
            b'K' => self.integer(1)?,
            b'M' => self.integer(2)?,
            b'J' => {
                let bytes = self.array::<4>()?;
                Value::Integer(i32::from_le_bytes(bytes).into())
            }
            0x8a => self.long()?,
            // BINUNICODE
            b'X' => {
                let length = u32::from_le_bytes(self.array()?);
                let bytes = self.take(length as usize)?;
                let text = str::from_utf8(bytes).map_err(|_| "the text is not UTF-8")?;
                Value::Text(text.into())
            }
            // GLOBAL
            b'c' => Value::Global(self.global()?),
            // BINPERSID
            b'Q' => self.storage()?,
            // REDUCE
            b'R' => self.call()?,
            _ => return Err("files of tensors have no such instruction; refused".to_owned()),
        };
        self.stack.push(value);
        Ok(())
    }

    fn take(&mut self, count: usize) -> Result<&'a [u8], String> {
        let rest = self.bytes.get(self.at..).unwrap_or_default();
        let taken = rest.get(..count).ok_or("its pickle is cut off")?;
        self.at += count;
        Ok(taken)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], String> {
        let mut array = [0; N];
        array.copy_from_slice(self.take(N)?);
        Ok(array)
    }

    fn byte(&mut self) -> Result<u8, String> {
        Ok(self.array::<1>()?[0])
    }

    fn line(&mut self) -> Result<&'a str, String> {
        let rest = self.bytes.get(self.at..).unwrap_or_default();
        let end = rest.iter().position(|&byte| byte == b'\n');
        let line = self.take(end.ok_or("its pickle is cut off")?)?;
        self.at += 1;
        str::from_utf8(line).map_err(|_| "a name is not UTF-8".to_owned())
    }

    fn pop(&mut self) -> Result<Value, String> {
        // A mark is not a value.
        let floor = self.marks.last().copied().unwrap_or(0);
        if self.stack.len() <= floor {
            return Err("the stack is empty".to_owned());
        }
        self.stack.pop().ok_or_else(|| "the stack is empty".into())
    }

    /// The last `count` values.
    fn pop_many(&mut self, count: usize) -> Result<Vec<Value>, String> {
        let floor = self.marks.last().copied().unwrap_or(0);
        let first = self.stack.len().checked_sub(count);
        let first = first.filter(|&first| first >= floor);
        let first = first.ok_or("the stack has too few values")?;
        Ok(self.stack.split_off(first))
    }

    /// Removes the last mark; the number of values above it.
    fn above_mark(&mut self) -> Result<usize, String> {
        let mark = self.marks.pop().ok_or("there is no mark")?;
        let count = self.stack.len().checked_sub(mark);
        count.ok_or_else(|| "the values of the mark are gone".into())
    }

    fn container(&mut self, container: Container) -> Value {
        self.containers.push(container);
        Value::Container(self.containers.len() - 1)
    }

    fn tuple(&mut self, count: usize) -> Result<Value, String> {
        let items = self.pop_many(count)?;
        Ok(self.container(Container::Tuple(items)))
    }

    fn slot(&mut self, is_long: bool) -> Result<u32, String> {
        match is_long {
            true => Ok(u32::from_le_bytes(self.array()?)),
            false => self.byte().map(u32::from),
        }
    }

    fn protocol(&mut self) -> Result<(), String> {
        match self.byte()? {
            2 => Ok(()),
            other => Err(format!("protocol {other} is not read, only 2")),
        }
    }

    /// Without a sign.
    fn integer(&mut self, bytes: usize) -> Result<Value, String> {
        let bytes = self.take(bytes)?;
        let value = bytes
            .iter()
            .rev()
            .fold(0, |value, &byte| value << 8 | i64::from(byte));
        Ok(Value::Integer(value))
    }

    /// Longer ones than 8 bytes are no sizes.
    fn long(&mut self) -> Result<Value, String> {
        let count = usize::from(self.byte()?);
        let bytes = self.take(count)?;
        if count > 8 {
            return Ok(Value::Other);
        }
        let is_negative = bytes.last().is_some_and(|&byte| byte >= 0x80);
        let mut full = [if is_negative { 0xff } else { 0 }; 8];
        full[..count].copy_from_slice(bytes);
        Ok(Value::Integer(i64::from_le_bytes(full)))
    }

    fn append(&mut self, count: usize) -> Result<(), String> {
        let items = self.pop_many(count)?;
        match self.top_container() {
            Some(Container::List(list)) => {
                list.extend(items);
                Ok(())
            }
            _ => Err("there is no list to append to".to_owned()),
        }
    }

    fn set_items(&mut self, count: usize) -> Result<(), String> {
        let items = self.pop_many(count)?;
        if items.len() % 2 != 0 {
            return Err("a key has no value".to_owned());
        }
        let dict = self.dict()?;
        let mut items = items.into_iter();
        while let (Some(key), Some(value)) = (items.next(), items.next()) {
            dict.push((key, value));
        }
        Ok(())
    }

    fn top_container(&mut self) -> Option<&mut Container> {
        match self.stack.last()? {
            Value::Container(index) => self.containers.get_mut(*index),
            _ => None,
        }
    }

    fn dict(&mut self) -> Result<&mut Vec<(Value, Value)>, String> {
        match self.top_container() {
            Some(Container::Dict(dict)) => Ok(dict),
            _ => Err("there is no dict".to_owned()),
        }
    }

    fn global(&mut self) -> Result<Global, String> {
        let (module, name) = (self.line()?, self.line()?);
        let short = |text: &str| plain_line(text.get(..64).unwrap_or(text));
        match (module, name) {
            ("collections", "OrderedDict") => Ok(Global::OrderedDict),
            ("torch._utils", "_rebuild_tensor_v2") => Ok(Global::RebuildTensor),
            ("torch._utils", "_rebuild_tensor_v3") => Ok(Global::RebuildTypedTensor),
            ("torch._utils", "_rebuild_parameter") => Ok(Global::RebuildParameter),
            ("torch.storage", "UntypedStorage") => Ok(Global::UntypedStorage),
            ("torch", name) if dtype_of(name).is_some() => {
                Ok(dtype_of(name).map_or(Global::UntypedStorage, Global::Type))
            }
            _ => Err(format!(
                "it names {:?} {:?}, which is no part of a tensor; refused, and nothing was executed",
                short(module),
                short(name)
            )),
        }
    }

    fn tuple_items(&self, value: &Value) -> Result<&[Value], String> {
        match value {
            Value::Container(index) => match self.containers.get(*index) {
                Some(Container::Tuple(items)) => Ok(items),
                _ => Err("a tuple is expected".to_owned()),
            },
            _ => Err("a tuple is expected".to_owned()),
        }
    }

    /// `("storage", class, key, device, length)`
    fn storage(&mut self) -> Result<Value, String> {
        let id = self.pop()?;
        let [kind, class, key, _, length] = self.tuple_items(&id)? else {
            return Err("a storage has five parts".to_owned());
        };
        let dtype = match class {
            Value::Global(Global::Type(dtype)) => Some(*dtype),
            Value::Global(Global::UntypedStorage) => None,
            _ => return Err("a storage needs a storage class".to_owned()),
        };
        match (kind, key) {
            (Value::Text(kind), Value::Text(key)) if &**kind == "storage" => {
                Ok(Value::Storage(Rc::new(Storage {
                    dtype,
                    key: Rc::clone(key),
                    length: size(length)?,
                })))
            }
            _ => Err("it is no storage".to_owned()),
        }
    }

    /// Makes what a permitted function would return.
    fn call(&mut self) -> Result<Value, String> {
        let arguments = self.pop()?;
        let function = self.pop()?;
        let arguments = self.tuple_items(&arguments)?;
        match (function, arguments) {
            (Value::Global(Global::OrderedDict), []) => {
                Ok(self.container(Container::Dict(Vec::new())))
            }
            (Value::Global(Global::RebuildParameter), [tensor @ Value::Tensor(_), ..]) => {
                Ok(tensor.clone())
            }
            (
                Value::Global(Global::RebuildTensor),
                [Value::Storage(storage), offset, shape, strides, ..],
            ) => {
                let dtype = storage.dtype.ok_or("its storage has no type")?;
                self.tensor(storage, dtype, [offset, shape, strides])
            }
            (
                Value::Global(Global::RebuildTypedTensor),
                [
                    Value::Storage(storage),
                    offset,
                    shape,
                    strides,
                    _,
                    _,
                    Value::Global(Global::Type(dtype)),
                    ..,
                ],
            ) => self.tensor(storage, *dtype, [offset, shape, strides]),
            (Value::Global(function), _) => Err(format!(
                "{function:?} cannot be called with these arguments; refused"
            )),
            _ => Err("there is no function to call".to_owned()),
        }
    }

    fn tensor(
        &self,
        storage: &Rc<Storage>,
        dtype: Dtype,
        [offset, shape, strides]: [&Value; 3],
    ) -> Result<Value, String> {
        let sizes = |value: &Value| -> Result<Vec<usize>, String> {
            self.tuple_items(value)?.iter().map(size).collect()
        };
        let (shape, strides) = (sizes(shape)?, sizes(strides)?);
        if shape.len() != strides.len() || shape.len() > DIMENSIONS_MAX {
            return Err(format!(
                "a tensor has {} sizes and {} strides; both must be the same, {DIMENSIONS_MAX} at most",
                shape.len(),
                strides.len()
            ));
        }
        Ok(Value::Tensor(Rc::new(StoredTensor {
            storage: Rc::clone(storage),
            dtype,
            offset: size(offset)?,
            shape,
            strides,
        })))
    }
}

fn size(value: &Value) -> Result<usize, String> {
    match value {
        Value::Integer(number) => {
            usize::try_from(*number).map_err(|_| format!("{number} is no size"))
        }
        _ => Err("a size is no whole number".to_owned()),
    }
}

/// Collects the tensors below a value.
struct Walk<'a> {
    machine: &'a PickleMachine<'a>,
    archive: &'a Archive<'a>,
    visits: usize,
    found: &'a mut Vec<FileTensor>,
}

impl Walk<'_> {
    fn visit(&mut self, name: &str, value: &Value, depth: usize) -> Result<(), String> {
        self.visits += 1;
        if self.visits > VISITS_MAX || depth > DEPTH_MAX {
            return Err(format!(
                "its dicts are nested deeper than {DEPTH_MAX}, or have more than {VISITS_MAX} values"
            ));
        }
        if name.len() > NAME_MAX_BYTES {
            return Err(format!(
                "the name of a tensor has {} bytes; {NAME_MAX_BYTES} at most",
                name.len()
            ));
        }
        match value {
            Value::Tensor(tensor) => {
                let range = self.archive.storage(&tensor.storage.key);
                let placed = range.and_then(|range| tensor.placed(name, range));
                self.found
                    .push(placed.map_err(|reason| format!("tensor {name:?}: {reason}"))?);
                Ok(())
            }
            Value::Container(index) => match &self.machine.containers[*index] {
                Container::Dict(items) => {
                    for (key, value) in items {
                        let name = match key {
                            Value::Text(key) => joined(name, key),
                            Value::Integer(key) => joined(name, &key.to_string()),
                            _ => return Err(format!("a key in {name:?} is no text")),
                        };
                        self.visit(&name, value, depth + 1)?;
                    }
                    Ok(())
                }
                Container::List(items) | Container::Tuple(items) => {
                    for (index, value) in items.iter().enumerate() {
                        self.visit(&joined(name, &index.to_string()), value, depth + 1)?;
                    }
                    Ok(())
                }
            },
            Value::Other
            | Value::Integer(_)
            | Value::Text(_)
            | Value::Global(_)
            | Value::Storage(_) => Ok(()),
        }
    }
}

fn joined(name: &str, key: &str) -> String {
    match name {
        "" => key.to_owned(),
        name => format!("{name}.{key}"),
    }
}

impl StoredTensor {
    /// The tensor with its bytes in the file, all of which are checked to be in its storage.
    fn placed(&self, name: &str, storage: ByteRange) -> Result<FileTensor, String> {
        let value_bytes = |dtype| value_bytes(dtype).ok_or("its values are no whole bytes");
        let unit = self.storage.dtype.map_or(Ok(1), value_bytes)?;
        let announced = self.storage.length.checked_mul(unit);
        if announced.map(|bytes| bytes as u64) != Some(storage.length) {
            return Err(format!(
                "its storage has {} bytes, its pickle says {} values of {unit}",
                storage.length, self.storage.length
            ));
        }
        let size = value_bytes(self.dtype)?;
        let outside = || {
            format!(
                "shape {:?}, strides {:?} and offset {} do not fit into its storage of {} bytes",
                self.shape, self.strides, self.offset, storage.length
            )
        };
        let (count, span) = self.count_and_span().ok_or_else(outside)?;
        let end = self.offset.checked_add(span);
        let end = end.and_then(|end| end.checked_mul(size));
        let end = end.filter(|&end| end as u64 <= storage.length);
        let end = end.ok_or_else(outside)?;
        // Values that are there several times could need more memory than the file has bytes.
        if count > span {
            return Err(format!("{}; it repeats values", outside()));
        }
        // All from the first to the last are read at once.
        if span / 4 > count {
            return Err(format!("{}; it leaves out most of the values", outside()));
        }
        let start = storage.start as usize;
        Ok(FileTensor {
            name: name.to_owned(),
            info: TensorInfo {
                dtype: self.dtype,
                shape: self.shape.clone(),
                data_offsets: (start + self.offset * size, start + end),
            },
            strides: (!self.is_row_major()).then(|| self.strides.clone()),
        })
    }

    /// The number of values, and the values from the first to the last; `None` when they are too many to count.
    fn count_and_span(&self) -> Option<(usize, usize)> {
        let mut sizes = self.shape.iter();
        let count = sizes.try_fold(1usize, |all, &size| all.checked_mul(size));
        if self.shape.contains(&0) {
            return Some((0, 0));
        }
        let mut last = 0usize;
        for (size, stride) in self.shape.iter().zip(&self.strides) {
            last = last.checked_add((size - 1).checked_mul(*stride)?)?;
        }
        Some((count?, last.checked_add(1)?))
    }

    fn is_row_major(&self) -> bool {
        let mut expected = 1;
        let dimensions = self.shape.iter().zip(&self.strides).rev();
        let mut row_major = dimensions.map(|(&size, &stride)| {
            let fits = size == 1 || stride == expected;
            expected *= size;
            fits
        });
        self.shape.contains(&0) || row_major.all(|fits| fits)
    }
}

#[cfg(test)]
mod tests;
