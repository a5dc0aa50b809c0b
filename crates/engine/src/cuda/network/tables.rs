//! A step's tables as arguments of the kernels.

use crate::cuda::{
    kernels::{OwnTables, PickTables, PrefixTables},
    memory::Pointer,
    program::{StepCounts, Table, TableLayout},
};

/// The tables of a step on the GPU, and the numbers of their entries.
#[derive(Clone, Copy)]
pub struct StepTables<'a> {
    /// Where they are in the block.
    pub layout: &'a TableLayout,
    pub block: Pointer<i32>,
    pub counts: &'a StepCounts,
}

impl StepTables<'_> {
    pub fn at(&self, table: Table) -> Pointer<i32> {
        self.block.at(table.start)
    }

    /// Tiles and the prefixes that they read.
    pub fn prefix(&self) -> PrefixTables {
        PrefixTables {
            pages: self.at(self.layout.pages),
            tile_row: self.at(self.layout.tile_row),
            tile_table: self.at(self.layout.tile_table),
            tile_length: self.at(self.layout.tile_length),
        }
    }

    /// Own pages of the rows.
    pub fn own(&self) -> OwnTables {
        OwnTables {
            pages: self.at(self.layout.pages),
            own_table: self.at(self.layout.own_table),
            own_length: self.at(self.layout.own_length),
            place: self.at(self.layout.place),
        }
    }

    pub fn picks(&self, is_zombie: Pointer<i32>) -> PickTables {
        PickTables {
            pick: self.at(self.layout.pick),
            is_zombie,
            choice: self.at(self.layout.choice),
            banned: self.at(self.layout.banned),
        }
    }
}
