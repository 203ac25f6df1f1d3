//! The erased twin of a harness: the same store behind a backend whose type is forgotten.

use super::{Capabilities, Harness, Instance, Severed};
use crate::{
    Erased, Result,
    spi::{Backend, Lease},
};

/// The same set-up through [`Erased`], as a user gets it from a URL.
#[derive(Clone, Debug)]
pub struct ErasedTwin<T>(
    /// The set-up of the backend whose type is known.
    pub T,
);

type TokenOf<B> = <<B as Backend>::Lease as Lease>::Token;

impl<H: Harness> Harness for ErasedTwin<H> {
    type Backend = Erased<TokenOf<H::Backend>>;
    type Instance = ErasedTwin<H::Instance>;

    fn name(&self) -> String {
        format!("{}-erased", self.0.name())
    }

    fn capabilities(&self) -> Capabilities {
        self.0.capabilities()
    }

    async fn fresh(&self) -> Result<Self::Instance> {
        self.0.fresh().await.map(ErasedTwin)
    }

    async fn open(&self, url: &str) -> Result<Self::Backend> {
        self.0.open(url).await.map(Erased::new)
    }
}

impl<I: Instance> Instance for ErasedTwin<I> {
    type Backend = Erased<TokenOf<I::Backend>>;

    async fn connect(&self) -> Result<Self::Backend> {
        self.0.connect().await.map(Erased::new)
    }

    fn url(&self) -> Option<String> {
        self.0.url()
    }

    fn sever(&self) -> Option<Severed> {
        self.0.sever()
    }
}
