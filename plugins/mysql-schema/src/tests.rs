//! What a `MySQLSchema` needs, as values; the statements are tried on a real server, in the scenarios.

use capstan_guest::{Dependents, test};

use super::*;

fn schema(namespace: &str, name: &str) -> MySqlSchema {
    let metadata = json!({ "name": name, "namespace": namespace, "uid": "0f3bd2a6-0a6c-4a63-9d0e-1b5f1f0f7c11" });
    serde_json::from_value(json!({ "metadata": metadata, "spec": { "encoding": "utf8mb4" } })).unwrap()
}

#[test]
fn a_schema_is_called_by_its_namespace_too_and_its_account_by_its_uid() {
    let one = schema("web", "orders");
    assert_eq!(one.name().unwrap(), "web_orders");
    // Servers take 32 characters for an account, and more or less.
    assert_eq!(one.user().unwrap(), "0f3bd2a60a6c4a639d0e1b5f1f0f7c11");
    assert_ne!(schema("a-b", "c").name().unwrap(), schema("a", "b-c").name().unwrap());
    let error = schema("web", &"x".repeat(61)).name().unwrap_err();
    assert!(error.message().ends_with("a server takes at most 64 characters"), "{error:?}");
}

#[test]
fn each_secret_has_a_password_of_its_own() {
    let generated = || {
        let secret = MySqlSchemaOperator::secret(&schema("web", "orders")).unwrap();
        assert_eq!(secret["metadata"]["name"], "orders-secret");
        let run = test::Run::new().secondary("secret", secret);
        test::with(run, password).answer.unwrap().unwrap()
    };
    let (one, other) = (generated(), generated());
    assert_eq!((one.as_str().len(), one == other), (48, false));
}

#[test]
fn a_secret_without_a_text_is_an_error_that_does_not_quote_it() {
    let secret = json!({ "metadata": { "name": "orders-secret" }, "data": { "MYSQL_PASSWORD": "/w==" } });
    let run = test::Run::new().secondary("secret", secret);
    let answer = test::with(run, password).answer;
    assert_eq!(answer.unwrap_err().message(), "MYSQL_PASSWORD in the Secret is no text");
}

#[test]
fn what_is_desired_is_the_schema_with_the_encoding_of_the_spec() {
    let desired = MySqlSchemaOperator::desired("schema", &schema("web", "orders")).unwrap();
    let expected = json!({ "name": "web_orders", "encoding": "utf8mb4", "login": true });
    assert_eq!(desired.parse::<Value>().unwrap(), expected);
}
