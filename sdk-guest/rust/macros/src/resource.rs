//! Reads what `#[resource(…)]` says of a custom resource.

use proc_macro2::TokenStream;
use quote::quote;
use syn::meta::ParseNestedMeta;
use syn::punctuated::Punctuated;
use syn::{DeriveInput, Error, LitInt, LitStr, Result, Token, parenthesized};

/// What stands in the attribute.
#[derive(Default)]
struct Said {
    api_version: Option<LitStr>,
    facts: Vec<TokenStream>,
    columns: Vec<TokenStream>,
}

const EXPECTED: &str = "expected `api_version`, `kind`, `plural`, `scope`, `short_names`, `categories`, `column`, `conditions`, `storage`, `scale` or `selectable_fields`";

pub(crate) fn expand(input: &DeriveInput) -> Result<TokenStream> {
    let mut said = Said::default();
    for attribute in input.attrs.iter().filter(|attribute| attribute.path().is_ident("resource")) {
        attribute.parse_nested_meta(|meta| said.add(&meta))?;
    }
    let Said { api_version, facts, columns } = said;
    let name = &input.ident;
    let api_version = api_version.ok_or_else(|| {
        Error::new_spanned(name, "expected `#[resource(api_version = \"example.com/v1alpha1\")]` above the type")
    })?;
    let kind = name.to_string();
    Ok(quote! {
        impl ::capstan_guest::types::Resource for #name {
            fn facts() -> ::capstan_guest::types::Facts {
                ::capstan_guest::types::Facts::new(#api_version, #kind)#(.#facts)*#(.#columns)*
            }
        }
    })
}

impl Said {
    fn add(&mut self, meta: &ParseNestedMeta<'_>) -> Result<()> {
        let name = meta.path.get_ident().map(ToString::to_string).unwrap_or_default();
        match &*name {
            "api_version" => self.api_version = Some(meta.value()?.parse()?),
            "kind" | "plural" | "scope" => {
                let value: LitStr = meta.value()?.parse()?;
                let field = camel(&name);
                self.facts.push(quote!(with(#field, #value)));
            }
            "conditions" | "storage" => self.facts.push(quote!(with(#name, true))),
            "short_names" | "categories" | "selectable_fields" => {
                let (words, field) = (words(meta)?, camel(&name));
                self.facts.push(quote!(with(#field, [#(#words),*].as_slice())));
            }
            "scale" => {
                let words = words(meta)?;
                if !(2..=3).contains(&words.len()) {
                    return Err(meta.error(
                        "expected the paths of the replicas in spec and status, and of the selector if there is one",
                    ));
                }
                self.facts.push(quote!(scale(&[#(#words),*])));
            }
            "column" => self.columns.push(column(meta)?),
            _ => return Err(meta.error(format!("there is no `{name}` of a resource; {EXPECTED}"))),
        }
        Ok(())
    }
}

/// Reads `("Text", ".status.text")`, with a type and a priority behind them if they are said.
fn column(meta: &ParseNestedMeta<'_>) -> Result<TokenStream> {
    let content;
    parenthesized!(content in meta.input);
    let name: LitStr = content.parse()?;
    content.parse::<Token![,]>()?;
    let path: LitStr = content.parse()?;
    let (mut kind, mut priority) = (quote!(None), quote!(None));
    while content.parse::<Option<Token![,]>>()?.is_some() && !content.is_empty() {
        let key: syn::Ident = content.call(syn::ext::IdentExt::parse_any)?;
        content.parse::<Token![=]>()?;
        if key == "type" {
            let value: LitStr = content.parse()?;
            kind = quote!(Some(#value));
        } else if key == "priority" {
            let value: LitInt = content.parse()?;
            priority = quote!(Some(#value));
        } else {
            return Err(Error::new_spanned(key, "expected `type = \"…\"` or `priority = 1`"));
        }
    }
    Ok(quote!(column(#name, #path, #kind, #priority)))
}

fn words(meta: &ParseNestedMeta<'_>) -> Result<Vec<LitStr>> {
    let content;
    parenthesized!(content in meta.input);
    let words: Punctuated<LitStr, Token![,]> = Punctuated::parse_terminated(&content)?;
    Ok(words.into_iter().collect())
}

fn camel(name: &str) -> String {
    let mut parts = name.split('_');
    let first = parts.next().unwrap_or_default().to_owned();
    parts.fold(first, |all, part| {
        let mut letters = part.chars();
        let head: String = letters.next().map(|letter| letter.to_ascii_uppercase()).into_iter().collect();
        all + &head + letters.as_str()
    })
}
