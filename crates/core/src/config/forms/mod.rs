//! How values are written in the file. Each form reads, checks, describes itself and shows its default.

pub(crate) mod address;
pub(crate) mod choices;
pub(crate) mod environment;
pub(crate) mod file;
pub(crate) mod form;
pub(crate) mod list;
pub(crate) mod number;
pub(crate) mod polygon;
pub(crate) mod rights;
pub(crate) mod scope;
pub(crate) mod secret;
pub(crate) mod sub_table;
pub(crate) mod text;
pub(crate) mod time;
pub(crate) mod word;

/// What each table needs.
pub(crate) mod prelude {
    pub(crate) use super::{
        address,
        file::{AUTHORITIES, file},
        form::Form,
        list::{full_list, list},
        number::{flag, look_rate, number, share, whole},
        scope::Scope,
        secret::{CLEAR_TEXT, INSECURE, Secret, password, password_with, private_key},
        sub_table::{optional_table, sub_table, tables},
        text::{id, level, node_name, not_empty, prompt_words, quoted, schedule, text},
        time::{duration_text, memory, time},
        word::words,
    };
}
