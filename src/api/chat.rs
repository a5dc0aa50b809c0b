//! `/v1/chat/completions` in the shape of OpenAI, for clients that speak only that: one question about one picture. Pure.

use serde::Deserialize;
use serde_json::{Value, json};

use super::{
    error::ApiError,
    skills::{not_json, text, words},
};
use spotter_core::{Answer, Task};

/// The body of a request. Other keys (`temperature`, `max_tokens`) are ignored.
#[derive(Debug, Deserialize)]
pub struct ChatRequest {
    messages: Vec<ChatMessage>,
    #[serde(default)]
    stream: Option<bool>,
    #[serde(default)]
    n: Option<u32>,
}

#[derive(Debug, Deserialize)]
struct ChatMessage {
    role: String,
    content: Option<ChatContent>,
}

#[derive(Debug, Deserialize)]
#[serde(untagged)]
enum ChatContent {
    Text(String),
    Parts(Vec<ChatPart>),
}

/// Of a part that is neither text nor a picture, only the name of its kind is read.
#[derive(Debug, Deserialize)]
struct ChatPart {
    #[serde(rename = "type")]
    kind: String,
    text: Option<String>,
    image_url: Option<ImageUrl>,
}

#[derive(Debug, Deserialize)]
#[serde(untagged)]
enum ImageUrl {
    Object { url: String },
    Text(String),
}

/// What a request asks.
#[derive(Debug, PartialEq, Eq)]
pub struct ChatQuestion {
    pub image_url: String,
    pub task: Task,
    pub is_streamed: bool,
}

impl ChatQuestion {
    pub fn parse(body: &[u8]) -> Result<Self, ApiError> {
        let request: ChatRequest = serde_json::from_slice(body).map_err(|e| not_json(&e))?;
        if request.n.is_some_and(|n| n != 1) {
            return Err(ApiError::wrong("\"n\" must be 1"));
        }
        let mut found = ChatParts::default();
        for message in request.messages {
            found.add(message)?;
        }
        if found.users != 1 {
            return Err(ApiError::wrong(format!(
                "the request has {} messages of the user; send one with a question and a picture",
                found.users
            )));
        }
        let missing = "no picture; add a part {\"type\": \"image_url\", \"image_url\": {\"url\": \"data:image/jpeg;base64,…\"}}";
        Ok(Self {
            image_url: found.image_url.ok_or_else(|| ApiError::wrong(missing))?,
            task: Task::Query {
                question: words("text", Some(&found.words.join(" ")))?,
                choices: Vec::new(),
            },
            is_streamed: request.stream == Some(true),
        })
    }
}

/// What the messages of a request have.
#[derive(Debug, Default)]
struct ChatParts {
    users: usize,
    words: Vec<String>,
    image_url: Option<String>,
}

impl ChatParts {
    fn add(&mut self, message: ChatMessage) -> Result<(), ApiError> {
        match message.role.as_str() {
            "user" => self.users += 1,
            "system" | "developer" => {}
            _ => {
                return Err(ApiError::wrong(
                    "only messages with the roles system and user are understood; this model has no memory of a conversation",
                ));
            }
        }
        match message.content {
            None => {}
            Some(ChatContent::Text(text)) => self.words.push(text),
            Some(ChatContent::Parts(parts)) => {
                parts.into_iter().try_for_each(|part| self.add_part(part))?;
            }
        }
        Ok(())
    }

    fn add_part(&mut self, part: ChatPart) -> Result<(), ApiError> {
        match (part.kind.as_str(), part.text, part.image_url) {
            ("text", Some(text), _) => self.words.push(text),
            ("image_url", _, Some(ImageUrl::Object { url } | ImageUrl::Text(url))) => {
                if self.image_url.replace(url).is_some() {
                    return Err(ApiError::wrong(
                        "more than one picture; this model sees one at a time",
                    ));
                }
            }
            _ => {
                return Err(ApiError::wrong(
                    "a part of a message is neither {\"type\": \"text\", \"text\"} nor {\"type\": \"image_url\", \"image_url\"}",
                ));
            }
        }
        Ok(())
    }
}

/// Names an answer.
#[derive(Clone, Copy, Debug)]
pub struct ChatAnswer<'a> {
    pub id: &'a str,
    pub model: &'a str,
    /// Unix seconds.
    pub created: i64,
    pub answer: &'a Answer,
}

impl ChatAnswer<'_> {
    pub fn completion(&self) -> Value {
        let message = json!({"role": "assistant", "content": text(self.answer), "refusal": null});
        let choice = json!({
            "index": 0,
            "message": message,
            "logprobs": null,
            "finish_reason": self.finish_reason(),
        });
        self.object("chat.completion", &choice)
    }

    /// As server-sent events: the whole text in one.
    pub fn events(&self) -> String {
        let delta = json!({"role": "assistant", "content": text(self.answer)});
        let chunk = |delta: Value, finish_reason: Option<&str>| {
            let choice = json!({"index": 0, "delta": delta, "finish_reason": finish_reason});
            self.object("chat.completion.chunk", &choice)
        };
        let (words, end) = (
            chunk(delta, None),
            chunk(json!({}), Some(self.finish_reason())),
        );
        format!("data: {words}\n\ndata: {end}\n\ndata: [DONE]\n\n")
    }

    fn object(&self, kind: &str, choice: &Value) -> Value {
        json!({
            "id": self.id,
            "object": kind,
            "created": self.created,
            "model": self.model,
            "choices": [choice],
        })
    }

    fn finish_reason(&self) -> &'static str {
        match self.answer.truncated {
            true => "length",
            false => "stop",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(messages: Value) -> Result<ChatQuestion, ApiError> {
        let body = json!({"model": "any", "messages": messages, "temperature": 0});
        ChatQuestion::parse(body.to_string().as_bytes())
    }

    fn image(url: &str) -> Value {
        json!({"type": "image_url", "image_url": {"url": url, "detail": "low"}})
    }

    fn words_part(text: &str) -> Value {
        json!({"type": "text", "text": text})
    }

    #[test]
    fn question_is_the_text_of_system_and_user() {
        let user = json!({"role": "user", "content": [words_part("What colour\nis it?"), image("data:a")]});
        let system = json!({"role": "system", "content": "Answer briefly."});
        let asked = parse(json!([system, user])).unwrap();
        assert_eq!(asked.image_url, "data:a");
        assert_eq!(asked.task.text(), "Answer briefly. What colour is it?");
        assert!(!asked.is_streamed);
    }

    #[test]
    fn anything_but_one_question_about_one_picture_is_refused() {
        let user = |parts: Value| json!([{"role": "user", "content": parts}]);
        for (messages, part) in [
            (user(json!("What is it?")), "no picture"),
            (user(json!([image("data:a")])), "\"text\" is missing"),
            (
                user(json!([words_part("?"), image("data:a"), image("data:b")])),
                "more than one picture",
            ),
            (
                user(json!([{"type": "input_audio", "input_audio": {}}])),
                "neither",
            ),
            (json!([]), "0 messages of the user"),
            (
                json!([{"role": "assistant", "content": "Hello"}]),
                "system and user",
            ),
            (json!([{"content": "no role"}]), "missing field `role`"),
        ] {
            let error = parse(messages.clone()).unwrap_err();
            assert!(error.message.contains(part), "{messages}: {error:?}");
            assert_eq!(error.status, 400);
        }
        let two = br#"{"n": 2, "messages": []}"#;
        assert!(ChatQuestion::parse(two).is_err());
    }
}
