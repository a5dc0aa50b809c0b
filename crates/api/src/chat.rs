//! `/v1/chat/completions` in the shape of OpenAI, for clients that speak only that: one question about one picture. Pure.
//!
//! Faults: H11.

use std::sync::Arc;

use serde::Deserialize;
use serde_json::{Value, json};

use super::{
    error::ApiError,
    events::{EventShape, event},
    skills::{AdapterName, ApiQuestion, not_json, text, words},
};
use spotter_core::{Answer, AnswerPiece, QueryOptions, Task, TokenCounts};

/// The body of a request. Other keys (`temperature`, `max_tokens`) are ignored.
#[derive(Debug, Deserialize)]
pub struct ChatRequest {
    #[serde(default)]
    model: Option<String>,
    messages: Vec<ChatMessage>,
    #[serde(default)]
    stream: Option<bool>,
    #[serde(default)]
    stream_options: Option<StreamOptions>,
    #[serde(default)]
    n: Option<u32>,
    #[serde(default)]
    reasoning_effort: Option<String>,
}

#[derive(Debug, Deserialize)]
struct StreamOptions {
    include_usage: Option<bool>,
}

/// The form of an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ChatForm {
    Whole,
    /// Server-sent events. The tokens are in the chunk that ends the choice, or in one of their own behind it.
    Events {
        has_usage_chunk: bool,
    },
}

impl ChatRequest {
    fn form(&self) -> ChatForm {
        let options = self.stream_options.as_ref();
        match self.stream {
            Some(true) => ChatForm::Events {
                has_usage_chunk: options.is_some_and(|o| o.include_usage == Some(true)),
            },
            _ => ChatForm::Whole,
        }
    }

    /// The model has no grades of thinking: it writes down thoughts, or it does not.
    fn is_reasoned(&self) -> Result<bool, ApiError> {
        match self.reasoning_effort.as_deref() {
            None | Some("none" | "minimal") => Ok(false),
            Some("low" | "medium" | "high" | "xhigh") => Ok(true),
            Some(_) => Err(ApiError::wrong(
                "\"reasoning_effort\" must be \"none\" or \"minimal\" (without thoughts), or \"low\", \"medium\", \"high\" or \"xhigh\" (with them)",
            )),
        }
    }
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

impl ChatRequest {
    /// The form of the answer and what is asked; `None` without a picture: programs send "Hi" when they are set up, and the reply is
    /// [`ChatText::without_picture`].
    pub fn parse(body: &[u8]) -> Result<(ChatForm, Option<ApiQuestion>), ApiError> {
        let request: Self = serde_json::from_slice(body).map_err(|e| not_json(&e))?;
        let form = request.form();
        if request.n.is_some_and(|n| n != 1) {
            return Err(ApiError::wrong("\"n\" must be 1"));
        }
        let reasoning = request.is_reasoned()?;
        let mut found = ChatParts::default();
        for message in request.messages {
            found.add(message)?;
        }
        if found.users != 1 {
            let text = format!(
                "the request has {} messages of the user; send one with a question and a picture",
                found.users
            );
            return Err(ApiError::wrong(text));
        }
        let task = Task::Query {
            question: words("text", Some(&found.words.join(" ")))?,
            choices: Vec::new(),
            options: QueryOptions {
                reasoning,
                ..Default::default()
            },
        };
        let model = request.model.filter(|name| !name.is_empty());
        let question = found.image_url.map(|image_url| ApiQuestion {
            image_url,
            task,
            in_pieces: form != ChatForm::Whole,
            adapter: model.map(AdapterName::Model),
        });
        Ok((form, question))
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
                        "more than one picture; this model sees one at a time: send a request with the question for each picture",
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

/// What is said to a message without a picture.
const NO_PICTURE: &str = "This model answers questions about a picture. Send one message with a text and a part of the type image_url, \
     whose url is data:image/jpeg;base64,… with a JPEG or PNG file.";

/// What the replies to one request have in common.
#[derive(Clone, Debug)]
pub struct ChatReply {
    pub id: String,
    pub model: Arc<str>,
    /// Unix seconds.
    pub created: i64,
}

/// What a message is answered with.
#[derive(Clone, Copy, Debug)]
pub struct ChatText<'a> {
    text: &'a str,
    /// What the model wrote down before the text.
    thoughts: Option<&'a str>,
    is_truncated: bool,
    tokens: TokenCounts,
}

impl<'a> ChatText<'a> {
    pub fn of(answer: &'a Answer) -> Self {
        Self {
            text: text(answer),
            thoughts: answer.reasoning.as_ref().map(|r| r.text.as_str()),
            is_truncated: answer.truncated,
            tokens: answer.tokens,
        }
    }

    /// The reply to a message without a picture, which the model does not see.
    pub fn without_picture() -> Self {
        Self {
            text: NO_PICTURE,
            thoughts: None,
            is_truncated: false,
            tokens: TokenCounts::default(),
        }
    }

    fn finish_reason(&self) -> &'static str {
        match self.is_truncated {
            true => "length",
            false => "stop",
        }
    }
}

impl ChatReply {
    pub fn completion(&self, text: ChatText<'_>) -> Value {
        let mut message = json!({"role": "assistant", "content": text.text, "refusal": null});
        if let Some(thoughts) = text.thoughts {
            message["reasoning_content"] = thoughts.into();
        }
        let choice = json!({
            "index": 0,
            "message": message,
            "logprobs": null,
            "finish_reason": text.finish_reason(),
        });
        let mut completion = self.object("chat.completion", &json!([choice]));
        completion["usage"] = usage(text.tokens);
        completion
    }

    fn object(&self, kind: &str, choices: &Value) -> Value {
        json!({
            "id": self.id,
            "object": kind,
            "created": self.created,
            "model": self.model,
            "choices": choices,
        })
    }
}

/// A reply as server-sent events.
pub struct ChatEvents {
    pub reply: ChatReply,
    pub has_usage_chunk: bool,
}

impl ChatEvents {
    fn chunk(&self, delta: &Value, finish_reason: Option<&str>) -> Value {
        let choice = json!({"index": 0, "delta": delta, "finish_reason": finish_reason});
        self.reply.object(CHUNK, &json!([choice]))
    }

    fn text(&self, text: &str) -> String {
        event(&self.chunk(&json!({"content": text}), None))
    }

    fn last(&self, text: ChatText<'_>) -> String {
        let mut chunks = vec![self.chunk(&json!({}), Some(text.finish_reason()))];
        if self.has_usage_chunk {
            chunks.push(self.reply.object(CHUNK, &json!([])));
        }
        if let Some(last) = chunks.last_mut() {
            last["usage"] = usage(text.tokens);
        }
        let events = chunks.iter().map(event);
        events.chain(["data: [DONE]\n\n".to_owned()]).collect()
    }

    /// A text that is known at once.
    pub fn whole(&self, text: ChatText<'_>) -> String {
        [self.begin(), self.text(text.text), self.last(text)].concat()
    }
}

impl EventShape for ChatEvents {
    fn begin(&self) -> String {
        event(&self.chunk(&json!({"role": "assistant", "content": ""}), None))
    }

    fn piece(&self, piece: &AnswerPiece) -> String {
        match piece {
            AnswerPiece::Text(text) => self.text(text),
            AnswerPiece::Thought(text) => {
                event(&self.chunk(&json!({"reasoning_content": text}), None))
            }
            AnswerPiece::Box(_)
            | AnswerPiece::Point(_)
            | AnswerPiece::Bounds(_)
            | AnswerPiece::Path(_) => String::new(),
        }
    }

    fn end(&self, answer: &Answer) -> String {
        self.last(ChatText::of(answer))
    }
}

/// The kind of an object in an event.
const CHUNK: &str = "chat.completion.chunk";

fn usage(tokens: TokenCounts) -> Value {
    json!({
        "prompt_tokens": tokens.prompt,
        "completion_tokens": tokens.answer,
        "total_tokens": u64::from(tokens.prompt) + u64::from(tokens.answer),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(messages: Value) -> Result<(ChatForm, Option<ApiQuestion>), ApiError> {
        let body = json!({"model": "any", "messages": messages, "temperature": 0});
        ChatRequest::parse(body.to_string().as_bytes())
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
        let (form, asked) = parse(json!([system, user])).unwrap();
        let asked = asked.unwrap();
        assert_eq!(asked.image_url, "data:a");
        assert_eq!(asked.task.text(), "Answer briefly. What colour is it?");
        assert_eq!(form, ChatForm::Whole);
        assert_eq!(asked.adapter, Some(AdapterName::Model("any".into())));
    }

    #[test]
    fn reasoning_effort_decides_whether_thoughts_are_written() {
        let content = [words_part("What is it?"), image("data:a")];
        for (effort, expected) in [
            (Value::Null, false),
            (json!("none"), false),
            (json!("minimal"), false),
            (json!("low"), true),
            (json!("high"), true),
        ] {
            let messages = json!([{"role": "user", "content": content}]);
            let body = json!({"messages": messages, "reasoning_effort": effort});
            let (_, asked) = ChatRequest::parse(body.to_string().as_bytes()).unwrap();
            let Some(Task::Query { options, .. }) = asked.map(|asked| asked.task) else {
                panic!("{body}");
            };
            assert_eq!(options.reasoning, expected, "{effort}");
        }
        let thought = ChatText {
            thoughts: Some("It has wheels."),
            ..ChatText::without_picture()
        };
        let message = &reply().completion(thought)["choices"][0]["message"];
        assert_eq!(message["reasoning_content"], "It has wheels.");
        let events = ChatEvents {
            reply: reply(),
            has_usage_chunk: false,
        };
        let piece = events.piece(&AnswerPiece::Thought("It".into()));
        assert!(
            piece.contains(r#""delta":{"reasoning_content":"It"}"#),
            "{piece}"
        );
    }

    #[test]
    fn message_without_a_picture_gets_a_fixed_answer() {
        let messages = json!([{"role": "user", "content": "Hi"}]);
        assert_eq!(parse(messages.clone()), Ok((ChatForm::Whole, None)));
        let body = json!({"messages": messages, "stream": true, "stream_options": {"include_usage": true}});
        let expected = ChatForm::Events {
            has_usage_chunk: true,
        };
        let parsed = ChatRequest::parse(body.to_string().as_bytes());
        assert_eq!(parsed, Ok((expected, None)));
        let answer = reply().completion(ChatText::without_picture());
        let text = answer["choices"][0]["message"]["content"].as_str().unwrap();
        assert!(text.contains("image_url"), "{text}");
        assert_eq!(answer["usage"]["total_tokens"], 0);
    }

    fn reply() -> ChatReply {
        ChatReply {
            id: "chatcmpl-1".into(),
            model: "md2".into(),
            created: 1,
        }
    }

    /// The chunks of an answer in two pieces.
    fn chunks(has_usage_chunk: bool) -> Vec<Value> {
        let events = ChatEvents {
            reply: reply(),
            has_usage_chunk,
        };
        let text = ChatText {
            text: "two cars",
            thoughts: None,
            is_truncated: false,
            tokens: TokenCounts {
                prompt: 740,
                answer: 3,
            },
        };
        let piece = |text: &str| events.piece(&AnswerPiece::Text(text.into()));
        let sent = [
            events.begin(),
            piece("two"),
            piece(" cars"),
            events.last(text),
        ];
        let sent = sent.concat();
        let data = sent
            .split("\n\n")
            .filter_map(|line| line.strip_prefix("data: "));
        let (end, chunks): (Vec<_>, Vec<_>) = data.partition(|data| *data == "[DONE]");
        assert_eq!(end.len(), 1);
        chunks
            .iter()
            .map(|data| serde_json::from_str(data).unwrap())
            .collect()
    }

    #[test]
    fn stream_has_its_pieces_and_ends_with_the_tokens() {
        let usage = json!({"prompt_tokens": 740, "completion_tokens": 3, "total_tokens": 743});
        let four = chunks(false);
        assert_eq!((four.len(), &four[3]["usage"]), (4, &usage));
        assert_eq!(four[0]["choices"][0]["delta"]["role"], "assistant");
        let contents = four
            .iter()
            .map(|chunk| &chunk["choices"][0]["delta"]["content"]);
        let contents: Vec<&str> = contents.filter_map(Value::as_str).collect();
        assert_eq!(contents, ["", "two", " cars"]);
        assert_eq!(four[3]["choices"][0]["finish_reason"], "stop");
        let five = chunks(true);
        assert_eq!((five.len(), &five[4]["usage"]), (5, &usage));
        assert_eq!(five[4]["choices"], json!([]));
    }

    #[test]
    fn anything_but_one_question_about_one_picture_is_refused() {
        let user = |parts: Value| json!([{"role": "user", "content": parts}]);
        for (messages, part) in [
            (user(json!([image("data:a")])), "\"text\" is missing"),
            (
                user(json!([words_part("?"), image("data:a"), image("data:b")])),
                "send a request with the question for each picture",
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
        let effort = br#"{"reasoning_effort": "much", "messages": []}"#;
        let error = ChatRequest::parse(effort).unwrap_err();
        assert!(error.message.contains("\"high\""), "{error:?}");
        let two = br#"{"n": 2, "messages": []}"#;
        assert!(ChatRequest::parse(two).is_err());
    }
}
