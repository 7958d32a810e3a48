//! A change: all that its records say.

use serde_json::Value;
use tenure_look::Group;

use super::{
    super::{
        list::{Subject, Tone},
        views::subject,
    },
    Page,
};

pub(super) fn tell(page: &mut Page<'_>, wanted: &Subject) {
    page.heading("Change");
    let groups = Group::all(page.picture.changes());
    let Some(group) = groups.iter().find(|group| subject(group) == *wanted) else {
        page.text(0, "It was more than an hour ago, or its record was removed.", Tone::Bad);
        return;
    };
    let (word, sentence) = group.describe();
    page.field("when", page.at(group.change.at));
    page.field("what", format!("{word} {}", sentence.trim_end()));
    // Its fields as documents have them: so none is left out.
    if let Ok(Value::Object(fields)) = serde_json::to_value(&group.change) {
        for (name, value) in &fields {
            field(page, name, value);
        }
    }
    if group.keys.len() > 1 {
        let keys: Vec<_> = group.keys.iter().map(ToString::to_string).collect();
        page.heading("All of its keys");
        page.text(0, keys.join(", "), Tone::Plain);
    }
}

/// A field as one line; one that has fields itself tells them all.
fn field(page: &mut Page<'_>, name: &str, value: &Value) {
    let told = told(value);
    if !told.is_empty() {
        page.field(name, told);
    }
}

fn told(value: &Value) -> String {
    match value {
        Value::Null => String::new(),
        Value::String(text) => text.clone(),
        Value::Object(fields) => {
            let fields = fields.iter().map(|(name, value)| (name, told(value)));
            let told = fields.filter(|(_, value)| !value.is_empty());
            told.map(|(name, value)| format!("{name} {value}")).collect::<Vec<_>>().join(", ")
        }
        other => other.to_string(),
    }
}
