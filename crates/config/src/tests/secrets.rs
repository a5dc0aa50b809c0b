//! The sources of secrets. No debug output contains one; `mistakes.txt` has the messages, none of which does.

use super::*;

const CANARY: &str = "canary-7f3a";

fn with_password(value: &str) -> String {
    gate(&format!("user = \"viewer\"\npassword = {value}"))
}

/// The problems of a file with that password, by their text.
fn texts(password: &str, environment: &Environment) -> Vec<String> {
    let problems = problems(&with_password(password), environment);
    problems.into_iter().map(|problem| problem.text).collect()
}

fn camera_password(config: &Config) -> Option<&str> {
    let (_, password) = config.cameras[0].source.login()?;
    Some(password.reveal())
}

#[test]
fn plain_text_is_accepted_where_the_file_allows_it() {
    let file = with_password(&format!("\"{CANARY}\""));
    let loaded = loaded(&format!("allow_plain_secrets = true\n{file}"));
    assert_eq!(camera_password(&loaded.config), Some(CANARY));
    assert!(!format!("{loaded:?}").contains(CANARY));
    assert!(loaded.warnings[0].text.starts_with("plain text: everyone"));
}

#[test]
fn missing_secret_is_a_warning_in_a_check() {
    let file = with_password("{ cred = \"gate_password\" }");
    let text = "systemd did not provide credential \"gate_password\"; add LoadCredential=gate_password:PATH to the unit";
    let checked = read(file.as_bytes(), ReadPurpose::Check, &environment(&[])).unwrap();
    assert_eq!(checked.warnings[0].text, text);
    assert_eq!(camera_password(&checked.config), None);
}

#[test]
fn secrets_come_from_variables_credentials_and_files() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("gate");
    fs::write(&path, format!("{CANARY}\r\n")).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
    let credentials = dir.path().to_str().unwrap();
    let surroundings = environment(&[("DOCK", CANARY), ("CREDENTIALS_DIRECTORY", credentials)]);
    for value in [
        "{ env = \"DOCK\" }".to_owned(),
        "{ cred = \"gate\" }".to_owned(),
        format!("{{ file = {path:?} }}"),
    ] {
        let file = with_password(&value);
        let loaded = read(file.as_bytes(), ReadPurpose::Run, &surroundings).unwrap();
        assert_eq!(camera_password(&loaded.config), Some(CANARY), "{value}");
        assert!(loaded.warnings.is_empty(), "{value}");
        assert!(!format!("{loaded:?}").contains(CANARY), "{value}");
    }
}

#[test]
fn a_secret_file_that_all_can_read_is_warned_of() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("gate");
    fs::write(&path, "x").unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o644)).unwrap();
    let shown = path.display();
    let expected = format!("{shown} is readable by all (mode 0644); run `chmod 600 {shown}`");
    let texts = texts(&format!("{{ file = {path:?} }}"), &environment(&[]));
    assert_eq!(texts, [expected]);
}
