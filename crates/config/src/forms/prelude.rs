//! What each table needs of this layer.

pub(crate) use super::{
    address,
    form::{Form, full_list, list, words},
    number::{flag, look_rate, number, share, whole},
    scope::{AUTHORITIES, Scope, file},
    secret::{CLEAR_TEXT, INSECURE, Secret, access_token, password, password_with, private_key},
    text::{
        find_id, id, known_id, level, node_name, not_empty, prompt_words, quoted, schedule, text,
    },
    time::{duration, duration_text, memory, size_in, time},
};
